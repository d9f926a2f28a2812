use super::*;

const S: u64 = 1_000_000_000;
const KEY: ProcessKey = (7, 70);

impl InspectionSchedule {
    fn is_due(&mut self, key: ProcessKey, descriptors: &[RawFd], now: u64) -> bool {
        self.due_since(key, descriptors, false, now).is_some()
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

/// A second driver library makes its groups some time after it has opened the driver.
#[test]
fn attached_process_is_inspected_again_soon_after_its_descriptors_have_changed() {
    const MS: u64 = 1_000_000;
    let mut schedule = InspectionSchedule::default();
    assert_eq!(schedule.due_since(KEY, &[3], false, 0), None, "it may attach");
    assert!(schedule.due_since(KEY, &[3], true, 500 * MS).is_some(), "it has attached");
    let mut inspections = Vec::new();
    for quarter in 2..200 {
        let (now, descriptors): (_, &[RawFd]) =
            (quarter * 250 * MS, if quarter < 160 { &[3] } else { &[3, 4] });
        if schedule.due_since(KEY, descriptors, true, now).is_some() {
            assert_eq!(schedule.due_attached(now).collect::<Vec<_>>(), [KEY]);
            inspections.push(quarter);
            schedule.record(KEY, vec![(1, 1)], None, now);
        }
    }
    assert_eq!(inspections, [2, 3, 5, 9, 17, 33, 65, 129, 160, 161, 163, 167, 175, 191]);
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
    assert_eq!(schedule.due_since(KEY, &[3], false, 4 * S), Some(3 * S));
}

#[test]
fn pod_beyond_its_query_rate_waits_and_other_pods_do_not() {
    let pods = HashSet::from(["expensive", "cheap"]);
    let mut limits = PodQueryLimits::default();
    let mut inspections = [0, 0];
    for second in 0..100 {
        let now = second * S;
        limits.begin_scan(&pods, now);
        for (pod, (count, queries)) in
            ["expensive", "cheap"].into_iter().zip(inspections.iter_mut().zip([1 << 18, 100]))
        {
            // Each pod has ten processes of which an inspection is due.
            for _ in 0..10 {
                if limits.allows(pod, now) {
                    limits.charge(pod, queries, now);
                    *count += 1;
                }
            }
        }
    }
    assert_eq!(inspections, [50, 1000]);
}

#[test]
fn unused_queries_are_not_saved_and_a_new_pod_has_its_part() {
    let mut limits = PodQueryLimits::default();
    (0..9).for_each(|second| limits.begin_scan(&HashSet::from(["one"]), second * S));
    limits.charge("one", 1 << 18, 8 * S);
    assert!(!limits.allows("one", 8 * S));
    limits.begin_scan(&HashSet::from(["another"]), 8 * S);
    assert!(limits.allows("another", 8 * S));
}

#[test]
fn pod_that_comes_between_two_complete_scans_is_inspected_by_the_next_scan() {
    let mut limits = PodQueryLimits::default();
    limits.begin_scan(&HashSet::from(["first"]), 0);
    assert!(limits.allows("second", 1));
    limits.charge("second", u32::MAX, 1);
    assert!(!limits.allows("second", S / 4), "what its inspections cost is charged to it");
}
