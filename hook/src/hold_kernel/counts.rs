//! Counters of hold kernels in this process.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(super) static LAUNCHED: AtomicU64 = AtomicU64::new(0);
pub(super) static RELEASED: AtomicU64 = AtomicU64::new(0);
/// Of those launched, the ones planned for later.
static SCHEDULED: AtomicU64 = AtomicU64::new(0);
/// Their lateness in nanoseconds, as sum and maximum.
static LATENESS_SUM_NS: AtomicU64 = AtomicU64::new(0);
static LATENESS_MAX_NS: AtomicU64 = AtomicU64::new(0);
/// Planned for later and not launched at their time: the request had arrived, or the last one was not over.
pub(super) static NOT_LAUNCHED: AtomicU64 = AtomicU64::new(0);

/// Of those launched, the ones that ended by themselves: their request was over, did not come, or reached a limit. Counted at the latest
/// before the next launch.
pub(super) static UNRELEASED: AtomicU64 = AtomicU64::new(0);

/// Counts a scheduled hold kernel that was launched `late_ns` after its start time.
pub(super) fn count_scheduled(late_ns: u64) {
    SCHEDULED.fetch_add(1, Relaxed);
    LATENESS_SUM_NS.fetch_add(late_ns, Relaxed);
    LATENESS_MAX_NS.fetch_max(late_ns, Relaxed);
}

/// The counters of `sluice_hook_holds`, in its order.
pub(crate) fn counts() -> [u64; 7] {
    [&LAUNCHED, &RELEASED, &SCHEDULED, &LATENESS_SUM_NS, &LATENESS_MAX_NS, &NOT_LAUNCHED, &UNRELEASED]
        .map(|count| count.load(Relaxed))
}
