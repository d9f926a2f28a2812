//! How often a client may announce groups: each one costs controls, which lock the driver for everybody on the node.

/// The most groups that may be announced at once.
const MOST: u64 = 64;
/// After so long one more may be announced: a group's controls take about 1.5 ms, so 1.5 % of the driver's time.
const EACH_NS: u64 = 100_000_000;

/// What one client may still announce. Begins with all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Allowance {
    /// When it is whole again.
    whole_at: u64,
}

impl Allowance {
    /// Takes so many groups out of it; `false`, and nothing is taken, if there is not as much left.
    pub fn take(&mut self, groups: usize, now: u64) -> bool {
        let missing = self.whole_at.saturating_sub(now);
        let cost = u64::try_from(groups).unwrap_or(u64::MAX).saturating_mul(EACH_NS);
        let fits = missing.saturating_add(cost) <= MOST * EACH_NS;
        if fits {
            self.whole_at = now.saturating_add(missing).saturating_add(cost);
        }
        fits
    }

    /// When there will be as much left; `None` if never.
    #[must_use]
    pub fn ready_at(&self, groups: usize) -> Option<u64> {
        let room = MOST.checked_sub(u64::try_from(groups).ok()?)?;
        Some(self.whole_at.saturating_sub(room * EACH_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn sixty_four_groups_at_once_and_ten_a_second_after_that() {
        let mut allowance = Allowance::default();
        assert!(allowance.take(60, S));
        assert!(!allowance.take(5, S));
        assert!(allowance.take(4, S));
        assert!(!allowance.take(1, S + EACH_NS - 1));
        assert!(allowance.take(1, S + EACH_NS));
        let taken = (0..1000_u64).filter(|ms| allowance.take(1, 2 * S + ms * 1_000_000)).count();
        assert!((10..=20).contains(&taken), "{taken}");
        assert!(allowance.take(64, 60 * S));
        assert_eq!((allowance.ready_at(65), allowance.ready_at(5)), (None, Some(60 * S + 5 * EACH_NS)));
        assert!(!allowance.take(5, 60 * S + 5 * EACH_NS - 1));
        assert!(allowance.take(5, 60 * S + 5 * EACH_NS));
    }
}
