//! When each process is inspected.

use super::Obstacle;
use super::ProcessKey;
use sluice_rate_limiter::Backoff;
use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;
use std::time::Duration;

/// The time that a process with the driver open has to attach by itself.
const ATTACH_GRACE_NS: u64 = 2_000_000_000;
/// The first and the longest delay between two inspections of a process in which nothing changes.
const DELAYS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];

#[derive(Debug)]
struct State {
    /// When the next inspection is due.
    due: u64,
    delay: Backoff,
    descriptors: Vec<RawFd>,
    /// The result of the last inspection; `None` before the first.
    last: Option<LastInspection>,
}

#[derive(Debug, PartialEq, Eq)]
struct LastInspection {
    /// Handles of the groups, sorted.
    groups: Vec<(u32, u32)>,
    obstacle: Option<Obstacle>,
}

/// The inspection schedule of all candidates.
#[derive(Debug, Default)]
pub(super) struct InspectionSchedule(HashMap<ProcessKey, State>);

impl InspectionSchedule {
    /// Forgets all processes but these.
    pub(super) fn retain(&mut self, present: &HashSet<ProcessKey>) {
        self.0.retain(|key, _| present.contains(key));
    }

    /// The time since which an inspection of a process is due; `None` if none is due. `descriptors` are its present ones.
    pub(super) fn due_since(&mut self, key: ProcessKey, descriptors: &[RawFd], now: u64) -> Option<u64> {
        let [first, longest] = DELAYS;
        let state = self.0.entry(key).or_insert_with(|| State {
            due: now.saturating_add(ATTACH_GRACE_NS),
            delay: Backoff::new(first, longest),
            descriptors: descriptors.to_vec(),
            last: None,
        });
        if state.descriptors != descriptors {
            state.descriptors = descriptors.to_vec();
            // Descriptors opened before the first inspection do not shorten the time to attach.
            if state.last.is_some() {
                state.due = state.due.min(now);
            }
        }
        (now >= state.due).then_some(state.due)
    }

    /// Makes an inspection due now.
    pub(super) fn set_due(&mut self, key: ProcessKey, now: u64) {
        if let Some(state) = self.0.get_mut(&key) {
            state.due = state.due.min(now);
        }
    }

    /// Records the result of an inspection. The delay doubles while the result stays the same.
    pub(super) fn record(
        &mut self,
        key: ProcessKey,
        mut groups: Vec<(u32, u32)>,
        obstacle: Option<Obstacle>,
        now: u64,
    ) {
        let Some(state) = self.0.get_mut(&key) else { return };
        groups.sort_unstable();
        let result = LastInspection { groups, obstacle };
        if state.last.as_ref() != Some(&result) {
            state.delay.succeeded();
        }
        let delay = u64::try_from(state.delay.next_delay().as_nanos()).unwrap_or(u64::MAX);
        state.due = now.saturating_add(delay);
        state.last = Some(result);
    }

    /// The obstacle that the last inspection of a process met.
    pub(super) fn obstacle(&self, key: ProcessKey) -> Option<&Obstacle> {
        self.0.get(&key)?.last.as_ref()?.obstacle.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const KEY: ProcessKey = (7, 70);

    impl InspectionSchedule {
        fn is_due(&mut self, key: ProcessKey, descriptors: &[RawFd], now: u64) -> bool {
            self.due_since(key, descriptors, now).is_some()
        }
    }

    #[test]
    fn first_inspection_follows_the_grace_time_and_later_ones_after_doubling_delays() {
        let mut schedule = InspectionSchedule::default();
        let mut inspections = Vec::new();
        for second in 0..40 {
            if schedule.is_due(KEY, &[3], second * S) {
                inspections.push(second);
                schedule.record(KEY, vec![(1, 1)], None, second * S);
            }
        }
        assert_eq!(inspections, [2, 4, 8, 16, 24, 32]);
        assert!(!schedule.is_due(KEY, &[3], 39 * S));
        assert!(schedule.is_due(KEY, &[3, 4], 39 * S), "the process opened the driver once more");
        schedule.record(KEY, vec![(1, 1), (1, 2)], None, 39 * S);
        assert!(schedule.is_due(KEY, &[3, 4], 41 * S), "the last inspection found a new group");
        schedule.record(KEY, vec![(1, 1), (1, 3)], None, 41 * S);
        assert!(schedule.is_due(KEY, &[3, 4], 43 * S), "the last inspection found another group");
    }

    #[test]
    fn process_that_was_absent_has_the_grace_time_again() {
        let mut schedule = InspectionSchedule::default();
        assert!(!schedule.is_due(KEY, &[3], 0));
        assert!(!schedule.is_due(KEY, &[3, 5], S), "a new descriptor does not shorten it");
        schedule.retain(&HashSet::new());
        assert!(!schedule.is_due(KEY, &[3], 3 * S));
        assert!(schedule.is_due(KEY, &[3], 5 * S));
    }

    #[test]
    fn process_is_due_at_every_scan_in_which_its_descriptors_have_changed() {
        let mut schedule = InspectionSchedule::default();
        let mut inspections = Vec::new();
        for second in 0..10 {
            let descriptor = 4 + i32::try_from(second % 2).unwrap();
            if schedule.is_due(KEY, &[3, descriptor], second * S) {
                inspections.push(second);
                schedule.record(KEY, vec![], None, second * S);
            }
        }
        assert_eq!(inspections, [2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn process_set_due_is_due_since_then() {
        let mut schedule = InspectionSchedule::default();
        assert!(!schedule.is_due(KEY, &[3], 0) && schedule.is_due(KEY, &[3], 2 * S));
        schedule.record(KEY, vec![], None, 2 * S);
        schedule.set_due(KEY, 3 * S);
        assert_eq!(schedule.due_since(KEY, &[3], 4 * S), Some(3 * S));
    }
}
