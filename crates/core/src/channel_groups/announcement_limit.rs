//! Limit on how often a client may announce channel groups. Each announcement costs controls, and a control locks the
//! driver of every GPU on the node.

use sluice_rate_limiter::{Rate, RateLimiter};

/// The most groups that may be announced at once.
const BURST: u64 = 64;
/// One more group may be announced each 100 ms. The controls of a group take about 1.5 ms: 1.5 % of the driver's time.
const PERIOD_NS: u64 = 100_000_000;

/// Announcements that one client may still make. Begins full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnnouncementLimit(RateLimiter);

impl Default for AnnouncementLimit {
    fn default() -> Self {
        Self(RateLimiter::full(Rate::one_per(BURST, PERIOD_NS)))
    }
}

impl AnnouncementLimit {
    /// Takes the announcement of this many groups. Returns `false` and takes nothing if fewer are left.
    pub fn take(&mut self, groups: usize, now: u64) -> bool {
        self.0.try_take(u64::try_from(groups).unwrap_or(u64::MAX), now)
    }

    /// When this many groups may be announced; `None` if never.
    #[must_use]
    pub fn ready_at(&self, groups: usize) -> Option<u64> {
        self.0.ready_at(u64::try_from(groups).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn sixty_four_groups_at_once_and_ten_a_second_after_that() {
        let mut limit = AnnouncementLimit::default();
        assert!(limit.take(60, S));
        assert!(!limit.take(5, S));
        assert!(limit.take(4, S));
        assert!(!limit.take(1, S + PERIOD_NS - 1));
        assert!(limit.take(1, S + PERIOD_NS));
        let taken = (0..1000_u64).filter(|ms| limit.take(1, 2 * S + ms * 1_000_000)).count();
        assert!((10..=20).contains(&taken), "{taken}");
        assert!(limit.take(64, 60 * S));
        assert_eq!((limit.ready_at(65), limit.ready_at(5)), (None, Some(60 * S + 5 * PERIOD_NS)));
        assert!(!limit.take(5, 60 * S + 5 * PERIOD_NS - 1));
        assert!(limit.take(5, 60 * S + 5 * PERIOD_NS));
    }
}
