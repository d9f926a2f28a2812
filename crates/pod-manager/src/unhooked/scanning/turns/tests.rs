use super::*;
use std::collections::HashSet;

#[test]
fn pod_with_thousands_of_processes_delays_only_itself() {
    let mut turns = SearchTurns::default();
    let many = (1..=10_000).map(|pid| (pid, "many"));
    let processes: Vec<_> = many.chain([(10_001, "few"), (10_002, "few"), (10_003, "third")]).collect();
    let mut looked_at = HashSet::new();
    for search in 1..=10 {
        let (now, later) = turns.divide(&processes);
        assert_eq!((now.len(), later.len()), (MOST_IN_SEARCH, processes.len() - MOST_IN_SEARCH));
        assert!([10_001, 10_002, 10_003].iter().all(|pid| now.contains(pid)), "search {search}");
        looked_at.extend(now);
    }
    assert_eq!(looked_at.len(), processes.len(), "each has its turn");
}

/// The order in which descriptors are listed, and where the next search goes on.
#[test]
fn processes_that_one_search_can_look_at_keep_their_order() {
    let mut turns = SearchTurns::default();
    let processes: Vec<_> =
        (1..=500).rev().map(|pid| (pid, if pid % 2 == 0 { "one" } else { "other" })).collect();
    let pids: Vec<i32> = processes.iter().map(|(pid, _)| *pid).collect();
    for _ in 0..3 {
        assert_eq!(turns.divide(&processes), (pids.clone(), Vec::new()));
    }
}
