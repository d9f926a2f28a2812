use super::*;

const S: u64 = 1_000_000_000;
const KEY: ProcessKey = (7, 70);

impl InspectionSchedule {
    fn is_due(&mut self, key: ProcessKey, descriptors: &[RawFd], now: u64) -> bool {
        self.due_since((key, "pod"), descriptors, false, now).is_some()
    }
}

fn due(schedule: &InspectionSchedule, now: u64) -> Vec<ProcessKey> {
    schedule.due(&HashMap::new(), now, 1, |_| true)
}

#[test]
fn first_inspection_follows_at_once_and_later_ones_after_doubling_delays() {
    let mut schedule = InspectionSchedule::default();
    let mut inspections = Vec::new();
    for quarter in 0..160 {
        if schedule.is_due(KEY, &[3], quarter * S / 4) {
            inspections.push(quarter);
            schedule.record(KEY, vec![(1, 1)], None, quarter * S / 4);
        }
    }
    assert_eq!(inspections, [1, 9, 25, 57, 89, 121, 153]);
    assert!(!schedule.is_due(KEY, &[3], 40 * S));
    assert!(schedule.is_due(KEY, &[3, 4], 40 * S), "the process opened the driver once more");
    schedule.record(KEY, vec![(1, 1), (1, 2)], None, 40 * S);
    assert!(schedule.is_due(KEY, &[3, 4], 42 * S), "the last inspection found a new group");
    schedule.record(KEY, vec![(1, 1), (1, 3)], None, 42 * S);
    assert!(schedule.is_due(KEY, &[3, 4], 44 * S), "the last inspection found another group");
}

#[test]
fn process_that_has_mapped_a_hook_has_two_seconds_to_attach() {
    let mut schedule = InspectionSchedule::default();
    assert!(!schedule.is_due(KEY, &[3], 0));
    assert!(schedule.is_due(KEY, &[3], S / 4));
    assert!(schedule.needs_hook(KEY));
    schedule.wait_for_attach(KEY);
    assert!(!schedule.is_due(KEY, &[3, 5], S), "a new descriptor does not shorten it");
    assert!(schedule.is_due(KEY, &[3, 5], 2 * S));
    assert!(!schedule.needs_hook(KEY), "it has no more time");
}

/// A second driver library makes its groups some time after it has opened the driver.
#[test]
fn attached_process_is_inspected_again_soon_after_its_descriptors_have_changed() {
    const MS: u64 = 1_000_000;
    let mut schedule = InspectionSchedule::default();
    assert_eq!(schedule.due_since((KEY, "pod"), &[3], false, 0), None, "it may attach");
    assert!(schedule.due_since((KEY, "pod"), &[3], true, 200 * MS).is_some(), "it has attached");
    schedule.record(KEY, vec![(1, 1)], None, 200 * MS);
    let mut inspections = Vec::new();
    for quarter in 400..420 {
        let now = quarter * 250 * MS;
        if schedule.due_since((KEY, "pod"), &[3, 4], true, now).is_some() {
            assert_eq!(due(&schedule, now), [KEY]);
            inspections.push(quarter);
            schedule.record(KEY, vec![(1, 1)], None, now);
        }
    }
    assert_eq!(inspections[..3], [400, 401, 403]);
    assert!((405..=407).contains(&inspections[3]), "{inspections:?}");
}

/// It would make groups of its own between two inspections.
#[test]
fn attached_process_in_which_nothing_changes_cannot_foresee_its_inspections() {
    let inspections = || {
        let (mut schedule, mut inspections) = (InspectionSchedule::default(), Vec::new());
        for quarter in 0..4000 {
            if schedule.due_since((KEY, "pod"), &[3], true, quarter * S / 4).is_some() {
                inspections.push(quarter);
                schedule.record(KEY, vec![(1, 1)], None, quarter * S / 4);
            }
        }
        inspections
    };
    let (one, other) = (inspections(), inspections());
    assert_ne!(one, other);
    let delays: Vec<u64> = one.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(delays.iter().all(|quarters| *quarters <= 64), "{delays:?}");
    assert!(delays[10..].iter().all(|quarters| *quarters >= 32), "{delays:?}");
}

#[test]
fn process_that_was_absent_counts_as_new() {
    let mut schedule = InspectionSchedule::default();
    assert!(!schedule.is_due(KEY, &[3], 0));
    schedule.retain(&HashSet::new());
    assert!(!schedule.is_due(KEY, &[3], 3 * S));
    assert!(schedule.is_due(KEY, &[3], 4 * S));
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
    assert_eq!(inspections, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn process_of_a_pod_without_queries_is_due_for_complete_searches_only() {
    let mut schedule = InspectionSchedule::default();
    assert!(!schedule.is_due(KEY, &[3], 0) && schedule.is_due(KEY, &[3], S));
    schedule.defer(KEY, S);
    assert_eq!(due(&schedule, 2 * S), []);
    assert!(schedule.is_due(KEY, &[3], 2 * S));
    schedule.record(KEY, vec![], None, 2 * S);
    assert_eq!(due(&schedule, 10 * S), [KEY]);
}

#[test]
fn process_set_due_is_due_since_then() {
    let mut schedule = InspectionSchedule::default();
    assert!(!schedule.is_due(KEY, &[3], 0) && schedule.is_due(KEY, &[3], 2 * S));
    schedule.record(KEY, vec![], None, 2 * S);
    schedule.set_due(KEY, 3 * S);
    assert_eq!(schedule.due_since((KEY, "pod"), &[3], false, 4 * S), Some(3 * S));
}

#[test]
fn pod_with_thousands_of_due_or_requested_processes_delays_only_itself() {
    let mut schedule = InspectionSchedule::default();
    for pid in 1..=5000 {
        assert_eq!(schedule.due_since(((pid, 1), "many"), &[3], false, 0), None);
    }
    assert_eq!(schedule.due_since(((9000, 1), "few"), &[3], false, 0), None);
    let requested = (1..=2000).map(|pid| ((pid, 1), 0)).collect();
    let due = schedule.due(&requested, S, 1, |_| true);
    assert_eq!((due.len(), due.contains(&(9000, 1))), (MOST_BETWEEN, true));
}
