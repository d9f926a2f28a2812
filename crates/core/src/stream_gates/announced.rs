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
mod tests;
