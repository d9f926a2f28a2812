//! REEF's example with REEF's header and library name: it preempts a stream, observes it from another stream, and restores it. It checks
//! its own results.

use sluice_preload_tests::{Node, TenantOptions, artifacts, shared};

fn node() -> Node {
    Node::with("1\nmain 0.5 1.0 8589934592\n").without_manager().start()
}

/// Runs the example to its end and returns what it printed.
fn printed(options: TenantOptions) -> serde_json::Value {
    let ending = options.start().finish();
    assert!(ending.status.success(), "{:?}: {}", ending.lines, ending.errors);
    serde_json::from_str(&ending.lines.concat()).unwrap_or_else(|error| panic!("{:?}: {error}", ending.lines))
}

fn number(value: &serde_json::Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[test]
fn the_linked_example_runs_without_a_preload() {
    let _lock = shared();
    let node = node();
    let example = node.tenant("main", "preempt").linked_with_reef().without_hook();
    let seen = printed(example.library_folder(&artifacts::built().reef).arguments("device"));
    assert_eq!(number(&seen, "level"), 1, "the simulated GPU has gates");
    assert_eq!(number(&seen, "stopped"), number(&seen, "still"));
    assert_eq!(node.ledger().processes.len(), 1);
}

#[test]
fn the_example_uses_the_preloaded_library() {
    let _lock = shared();
    let node = node();
    // No folder that the loader looks in has a library of either name.
    let seen = printed(node.tenant("main", "preempt").linked_with_reef().arguments("device"));
    assert_eq!((number(&seen, "level"), number(&seen, "all")), (1, 500));
}

#[test]
fn each_level_stops_the_stream_and_a_higher_one_falls_back() {
    let _lock = shared();
    let node = node();
    // The example's exit code says that the stream was stopped.
    for (asked, highest) in [("host", 0), ("device", 1), ("all", 2)] {
        let seen = printed(node.tenant("main", "preempt").linked_with_reef().arguments(asked));
        assert!(number(&seen, "level") <= highest, "{seen}");
    }
}

#[test]
fn on_a_driver_without_gates_the_example_preempts_by_the_host() {
    let _lock = shared();
    let node = Node::with("1\nmain 0.5 1.0 8589934592\n")
        .without_manager()
        .simulator_arguments("--mem-ops off")
        .start();
    let seen = printed(node.tenant("main", "preempt").linked_with_reef().arguments("device"));
    assert_eq!((number(&seen, "level"), number(&seen, "all")), (0, 500));
}
