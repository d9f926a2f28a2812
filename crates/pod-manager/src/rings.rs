//! How often a process rings its doorbell: each ring costs a round of the data plane.
//!
//! An honest process rings in vain now and then, too: it looks whether it is asked to just before it is no longer.

/// What one ring is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// It was asked for, and something has begun or was announced.
    Asked,
    /// Nobody asked for it, or nothing has happened.
    Vain,
}

/// Rings in vain that are borne with at once.
const MOST: u64 = 10_000;
/// One of them is forgiven each so many nanoseconds: 1,000 a second.
///
/// In `t` seconds a process so has at most 10,000 + 1,000 · `t` rounds for nothing, and ten times as many if it makes up what has happened;
/// while gates are closed the data plane looks at them 4,000 to 10,000 times a second without anybody's help. Somebody honest stays below: at most one of its rings for each time that
/// it begins to work is in vain.
const FORGIVEN_EACH_NS: u64 = 1_000_000;
/// One that was asked for counts for so little: 10,000 a second are borne with for ever. What has happened is the process's word only.
const ASKED_EACH_NS: u64 = 100_000;

/// Those of one process that are not forgiven yet.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    /// When all of them will be.
    forgiven_at: u64,
}

impl Rings {
    /// There is one more at `now`; whether they are too many with it.
    pub(crate) fn are_too_many(&mut self, ring: Ring, now: u64) -> bool {
        let counts_ns = match ring {
            Ring::Asked => ASKED_EACH_NS,
            Ring::Vain => FORGIVEN_EACH_NS,
        };
        self.forgiven_at = self.forgiven_at.max(now).saturating_add(counts_ns);
        self.forgiven_at - now > MOST * FORGIVEN_EACH_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_few_in_vain_are_forgiven_for_as_long_as_it_lives() {
        let mut rings = Rings::default();
        // One in ten seconds, for ten weeks.
        assert!((0..604_800).all(|nth| !rings.are_too_many(Ring::Vain, S + nth * 10 * S)));
        // And as many in an instant as ever.
        let now = 7_000_000 * S;
        assert!((0..MOST).all(|_| !rings.are_too_many(Ring::Vain, now)));
        assert!(rings.are_too_many(Ring::Vain, now));
        assert!(rings.are_too_many(Ring::Vain, now), "through another doorbell, too");
    }

    #[test]
    fn who_rings_in_vain_faster_than_is_forgiven_is_found_out() {
        for per_second in [1_100, 2_000, 100_000] {
            let mut rings = Rings::default();
            let mut times = (0..1_000_000).map(|nth| S + nth * S / per_second);
            let found = times.find(|now| rings.are_too_many(Ring::Vain, *now)).unwrap();
            let rang = (found - S) * per_second / S + 1;
            assert!(rang <= MOST + (found - S) / FORGIVEN_EACH_NS + 2, "{rang} of {per_second} a second");
        }
        let mut rings = Rings::default();
        assert!((0..100_000).all(|nth| !rings.are_too_many(Ring::Vain, S + nth * FORGIVEN_EACH_NS)));
    }

    #[test]
    fn ten_thousand_a_second_that_were_asked_for_are_borne_with_and_more_are_not() {
        let mut rings = Rings::default();
        assert!((0..1_000_000).all(|nth| !rings.are_too_many(Ring::Asked, S + nth * ASKED_EACH_NS)));
        let mut rings = Rings::default();
        assert!((0..1_000_000).any(|nth| rings.are_too_many(Ring::Asked, S + nth * ASKED_EACH_NS / 2)));
    }

    #[test]
    fn who_serves_five_thousand_requests_a_second_may_ring_in_vain_now_and_then() {
        let mut rings = Rings::default();
        let ring = |nth| if nth % 10 == 0 { Ring::Vain } else { Ring::Asked };
        assert!((0..1_000_000).all(|nth| !rings.are_too_many(ring(nth), S + nth * S / 5_000)));
    }
}
