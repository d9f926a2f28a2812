//! Doorbells that nobody asked for: each costs a round of the data plane.
//!
//! An honest process rings some of them, too: it looks whether it is asked to just before it is no longer.

/// Rings that are borne with at once.
const MOST: u64 = 10_000;
/// One is forgiven each so many nanoseconds: 1,000 a second.
///
/// In `t` seconds somebody hostile so has at most 10,000 + 1,000 · `t` rounds for nothing, and while gates are closed the data plane looks
/// at them 4,000 to 10,000 times a second without anybody's help. Somebody honest stays below: at most one of its rings for each time that
/// it begins to work is not asked for.
const FORGIVEN_EACH_NS: u64 = 1_000_000;

/// Those of one process that are not forgiven yet.
#[derive(Debug, Default)]
pub(crate) struct Unasked {
    /// When all of them will be.
    forgiven_at: u64,
}

impl Unasked {
    /// There is one more at `now`; whether they are too many with it.
    pub(crate) fn are_too_many(&mut self, now: u64) -> bool {
        self.forgiven_at = self.forgiven_at.max(now).saturating_add(FORGIVEN_EACH_NS);
        self.forgiven_at - now > MOST * FORGIVEN_EACH_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_few_are_forgiven_for_as_long_as_it_lives() {
        let mut unasked = Unasked::default();
        // One in ten seconds, for ten weeks.
        assert!((0..604_800).all(|nth| !unasked.are_too_many(S + nth * 10 * S)));
        // And as many in an instant as ever.
        let now = 7_000_000 * S;
        assert!((0..MOST).all(|_| !unasked.are_too_many(now)));
        assert!(unasked.are_too_many(now));
        assert!(unasked.are_too_many(now), "through another doorbell, too");
    }

    #[test]
    fn who_rings_faster_than_is_forgiven_is_found_out() {
        for per_second in [1_100, 2_000, 100_000] {
            let mut unasked = Unasked::default();
            let mut rings = (0..1_000_000).map(|nth| S + nth * S / per_second);
            let found = rings.find(|now| unasked.are_too_many(*now)).unwrap();
            let rang = (found - S) * per_second / S + 1;
            assert!(rang <= MOST + (found - S) / FORGIVEN_EACH_NS + 2, "{rang} of {per_second} a second");
        }
        let mut unasked = Unasked::default();
        assert!((0..100_000).all(|nth| !unasked.are_too_many(S + nth * FORGIVEN_EACH_NS)));
    }
}
