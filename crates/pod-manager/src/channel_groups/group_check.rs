//! Checks of channel groups by the control executor: a disabled group must not run, and a group must have the time slice that was set.
//!
//! A process can make the same controls on its groups as the manager, through its own descriptor. The driver does not tell whether a group is
//! enabled, but counts how often it was switched out: a group that is disabled is not. A read-back takes the driver's locks as a control
//! does, so counts are read at most [`SAMPLES_PER_SECOND`] times a second, at the begin and the end of a time in which the group is disabled.

use sluice_core::channel_groups::GroupId;
use sluice_core::processes::{Checks, GroupFinding, ViolationKind};
use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::HashMap;
use std::time::Instant;

/// Disabled groups that are watched, per second. Each costs two or three read-backs, so all of them take 0.5 % of the driver's time.
const SAMPLES_PER_SECOND: u64 = 4;
/// No group is watched more often than this, so that each has its turn.
const SAMPLE_INTERVAL_NS: u64 = 500_000_000;
/// Switches that a disabled group may show: a switch while it is being disabled is counted afterwards. A group that runs beside another one
/// with the driver's slices of 2 ms is switched out twelve times in a quantum of 50 ms.
const LATE_SWITCHES: u32 = 4;
/// Groups whose time slices one check reads back. Each read-back takes the driver's locks, and a control waits until the check has ended.
pub(super) const SLICES_PER_CHECK: usize = 32;
/// A driver may make slices as long as this in place of shorter ones.
const LONGEST_SHORT_SLICE_US: u64 = 1_000;

/// The disabled groups whose switches are watched.
#[derive(Debug)]
pub(super) struct DisabledGroups {
    began: Instant,
    limiter: RateLimiter,
    /// The count of switches when the group had been disabled.
    watched: HashMap<GroupId, u32>,
    /// When each group was last watched.
    last: HashMap<GroupId, u64>,
}

impl DisabledGroups {
    pub(super) fn new() -> Self {
        let limiter = RateLimiter::full(Rate::per_second(SAMPLES_PER_SECOND, SAMPLES_PER_SECOND));
        Self { began: Instant::now(), limiter, watched: HashMap::new(), last: HashMap::new() }
    }

    /// A group was disabled. Watches it if it is its turn.
    pub(super) fn disabled(&mut self, group: GroupId, switches: impl FnOnce() -> Option<u32>) {
        // An earlier count may be of a time before the group ran again.
        self.watched.remove(&group);
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let is_due = self.last.get(&group).is_none_or(|last| now.saturating_sub(*last) >= SAMPLE_INTERVAL_NS);
        if is_due
            && self.limiter.try_take(1, now)
            && let Some(switches) = switches()
        {
            self.last.insert(group, now);
            self.watched.insert(group, switches);
        }
    }

    /// The groups that are watched.
    pub(super) fn watched(&self) -> Vec<GroupId> {
        self.watched.keys().copied().collect()
    }

    /// Compares the count of switches of a group that is disabled still.
    pub(super) fn compare(&mut self, group: GroupId, switches: u32) -> Option<GroupFinding> {
        let before = self.watched.get_mut(&group)?;
        let ran = switches.wrapping_sub(*before);
        *before = switches;
        (ran > LATE_SWITCHES).then(|| GroupFinding {
            group,
            kind: ViolationKind::StoppedGroupRan,
            what: format!("a disabled channel group was switched out {ran} times, expected 0"),
            checks: None,
        })
    }

    /// A group is about to be enabled, or is forgotten.
    pub(super) fn forget(&mut self, group: GroupId, for_good: bool) {
        self.watched.remove(&group);
        if for_good {
            self.last.remove(&group);
        }
    }
}

/// The groups whose time slices the next check reads back, after the one that was read last.
pub(super) fn next_in_turn(groups: impl Iterator<Item = GroupId>, last: GroupId) -> Vec<GroupId> {
    let mut all: Vec<GroupId> = groups.collect();
    all.sort_unstable();
    let after = all.partition_point(|group| *group <= last);
    all.rotate_left(after);
    all.truncate(SLICES_PER_CHECK);
    all
}

/// Compares a group's time slice with the one that was set. Only a longer one takes time from others.
pub(super) fn compare_slice(
    group: GroupId,
    found_us: u64,
    set_us: u64,
    checks: Checks,
) -> Option<GroupFinding> {
    let is_longer = found_us > set_us.saturating_mul(2).max(LONGEST_SHORT_SLICE_US);
    is_longer.then(|| GroupFinding {
        group,
        kind: ViolationKind::TimeSlice,
        what: format!("a channel group has a time slice of {found_us} \u{b5}s, expected {set_us} \u{b5}s"),
        checks: Some(checks),
    })
}

#[cfg(test)]
mod tests;
