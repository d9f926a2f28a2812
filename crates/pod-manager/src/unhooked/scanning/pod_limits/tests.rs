use super::*;

const S: u64 = 1_000_000_000;

#[test]
fn pod_beyond_its_query_rate_waits_and_other_pods_do_not() {
    let pods = HashSet::from(["expensive", "cheap"]);
    let mut limits = PodLimits::new(QUERIES);
    let mut inspections = [0, 0];
    for second in 0..100 {
        let now = second * S;
        limits.divide(&pods, now);
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
    let mut limits = PodLimits::new(QUERIES);
    (0..9).for_each(|second| limits.divide(&HashSet::from(["one"]), second * S));
    limits.charge("one", 1 << 18, 8 * S);
    assert!(!limits.allows("one", 8 * S));
    limits.divide(&HashSet::from(["another"]), 8 * S);
    assert!(limits.allows("another", 8 * S));
}

#[test]
fn pod_that_comes_between_two_complete_scans_is_inspected_by_the_next_scan() {
    let mut limits = PodLimits::new(QUERIES);
    limits.divide(&HashSet::from(["first"]), 0);
    assert!(limits.allows("second", 1));
    limits.charge("second", u64::from(u32::MAX), 1);
    assert!(!limits.allows("second", S / 4), "what its inspections cost is charged to it");
}
