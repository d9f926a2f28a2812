//! Announced work: a latency-critical process announces that a request of its own begins soon, so that the gates are closed when it
//! does.

use crate::channel_groups::Activity;

/// The longest time for which an announcement closes the gates, nanoseconds.
const MAX_NS: u64 = 2_000_000;
/// How much later than announced the work may come, nanoseconds: the time that a host takes to prepare it varies.
const LATE_NS: u64 = 500_000;

/// An announcement that was read. It counts as work until the work comes or is late. [`GatePolicy::least_open`] bounds how long
/// announcements without work keep the gates closed, as it bounds work.
///
/// [`GatePolicy::least_open`]: super::GatePolicy::least_open
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Announced {
    /// When the manager read it.
    read_at: u64,
    /// Until when it counts as work.
    pub until: u64,
}

impl Announced {
    /// Work in `lead_ns`, announced at `now`. `None` if that is further ahead than 2 ms.
    #[must_use]
    pub fn at(now: u64, lead_ns: u64) -> Option<Self> {
        let lasts_ns = lead_ns.saturating_add(LATE_NS).min(MAX_NS);
        (lead_ns <= MAX_NS).then(|| Self { read_at: now, until: now.saturating_add(lasts_ns) })
    }

    /// Work at the time `begins_at`, announced on a page that is read at `now`. `None` if the work is late already.
    #[must_use]
    pub fn on_page(now: u64, begins_at: u64) -> Option<Self> {
        let is_late = begins_at.saturating_add(LATE_NS) <= now;
        (!is_late).then(|| Self::at(now, begins_at.saturating_sub(now))).flatten()
    }

    /// Whether it counts no longer: its time is up, or work has come.
    #[must_use]
    pub fn is_over(&self, now: u64, activity: Activity) -> bool {
        activity.busy || activity.since_ns > self.read_at || now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const S: u64 = 1_000_000_000;
    const IDLE: Activity = Activity { busy: false, since_ns: 0 };

    #[test]
    fn announcement_counts_until_work_comes_or_is_late() {
        let announced = Announced::at(S, 200 * US).unwrap();
        assert!(!announced.is_over(S + 699 * US, IDLE));
        assert!(announced.is_over(S + 700 * US, IDLE));
        assert!(announced.is_over(S, Activity { busy: true, since_ns: S }));
        // A whole request may have begun and ended between two readings.
        assert!(announced.is_over(S + 2, Activity { busy: false, since_ns: S + 1 }));
    }

    #[test]
    fn announcement_counts_for_two_milliseconds_at_most_and_is_ignored_further_ahead() {
        assert_eq!(Announced::at(S, MAX_NS + 1), None);
        assert_eq!(Announced::at(S, MAX_NS).map(|announced| announced.until), Some(S + MAX_NS));
    }

    #[test]
    fn page_that_is_read_after_the_work_was_due_is_ignored() {
        assert_eq!(Announced::on_page(S, S - LATE_NS), None);
        assert_eq!(Announced::on_page(S, S - 100 * US), Announced::at(S, 0));
        assert_eq!(Announced::on_page(S, S + MAX_NS), Announced::at(S, MAX_NS));
        assert_eq!(Announced::on_page(S, S + 2 * MAX_NS), None);
    }
}
