use super::*;

const S: u64 = 1_000_000_000;

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
    assert!(!limits.allows("one", 8 * S) && !limits.allows("another", 8 * S));
    limits.begin_scan(&HashSet::from(["another"]), 8 * S);
    assert!(limits.allows("another", 8 * S));
}
