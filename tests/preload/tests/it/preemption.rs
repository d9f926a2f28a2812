//! Programs that preempt their own streams, with the library and without a manager. The programs check their own results.

use sluice_preload_tests::{Ending, MS, Node, NodeOptions, shared};

/// A program of `preempt_calls.c` on a GPU of its own.
fn run(simulator: &str, arguments: &str) -> Ending {
    run_on(Node::with("0\n").without_manager().simulator_arguments(simulator), arguments)
}

fn run_on(node: NodeOptions, arguments: &str) -> Ending {
    let _lock = shared();
    let node = node.start();
    node.tenant("alone", "preempt_calls").arguments(arguments).start().finish().expect_success()
}

fn at_each_level(part: &str) {
    for level in [0, 1, 2] {
        run("", &format!("{part} {level}"));
    }
}

fn at_both_levels(part: &str) {
    for level in [0, 1] {
        run("", &format!("{part} {level}"));
    }
}

#[test]
fn a_stream_keeps_its_order_while_it_is_stopped_and_goes_on_at_random() {
    at_each_level("order");
}

#[test]
fn streams_that_hand_work_round_by_events_keep_their_order_while_they_are_stopped_at_random() {
    at_each_level("ring");
}

#[test]
fn questions_to_a_preempted_stream_are_answered_and_waits_end_when_it_is_restored() {
    at_both_levels("waits");
}

#[test]
fn arguments_may_be_overwritten_while_a_call_waits() {
    at_both_levels("arguments");
}

#[test]
fn a_stream_that_is_destroyed_while_preempted_does_its_work_when_it_is_restored() {
    at_both_levels("destroyed");
}

#[test]
fn a_wait_for_an_event_uses_its_last_record_before_the_wait() {
    at_both_levels("events");
}

#[test]
fn one_stream_of_a_context_stops_on_the_gpu_and_the_other_goes_on() {
    // Stepped: the GPU's time goes on slowly, so that a slow host has stopped the stream before its 100 ms of kernels end.
    let ending = run_on(Node::with("0\n").without_manager().stepped(), "two 1");
    let stopped = ending.lines.first().cloned().unwrap_or_default();
    assert!(stopped != "stopped after 20 of 20", "it had finished before it was stopped");
}

#[test]
fn the_legacy_default_stream_keeps_its_place_among_the_blocking_ones() {
    at_both_levels("legacy");
}

#[test]
fn host_functions_run_once_and_in_order() {
    at_each_level("functions");
}

#[test]
fn a_capture_beside_a_preempted_stream_and_a_graph_that_is_destroyed_while_its_launch_or_upload_waits() {
    at_both_levels("graphs");
}

#[test]
fn stream_ordered_memory_is_available_at_once_and_pageable_copies_are_unchanged() {
    at_both_levels("memory");
}

#[test]
fn memory_that_waiting_commands_use_is_freed_behind_them() {
    at_both_levels("frees");
}

#[test]
fn threads_preempt_their_own_default_streams() {
    at_both_levels("own");
}

#[test]
fn invalid_calls_are_refused() {
    at_both_levels("outcomes");
}

#[test]
fn an_idle_stream_is_notified_and_an_outage_ends() {
    at_both_levels("notices");
}

#[test]
fn a_child_process_is_not_affected() {
    at_each_level("forks");
}

#[test]
fn a_program_ends_with_a_stream_preempted() {
    at_each_level("exits");
}

#[test]
fn a_context_ends_with_a_stream_preempted() {
    at_each_level("contexts");
}

#[test]
fn only_a_possibly_last_release_of_the_primary_context_restores_its_streams() {
    at_both_levels("retains");
}

#[test]
fn no_stream_stops_at_a_gate_during_a_module_load_that_began_before_the_gates() {
    run("", "early 1");
}

#[test]
fn without_stream_memory_operations_streams_are_stopped_at_the_host() {
    let ending = run("--mem-ops off", "outcomes 0");
    assert_eq!(
        ending.lines,
        ["can 0 because the driver has no stream memory operations", "done"],
        "the level and its reason"
    );
    run("--mem-ops off", "order 0");
}

#[test]
fn temporarily_refused_gates_are_requested_again() {
    let ending = run("", "refusals 1");
    let (absent, memory, now) = (
        "the driver has no stream memory operations; then 0",
        "there is no memory for gates; then 1",
        "the driver makes no gates at the moment; then 1",
    );
    let expected = [
        format!("cuMemHostRegister_v2 2: 0, {memory}"),
        format!("cuStreamBatchMemOp_v2 2: 0, {memory}"),
        format!("cuStreamCreate 2: 0, {memory}"),
        format!("cuStreamBatchMemOp_v2 600: 0, {now}"),
        format!("cuStreamBatchMemOp_v2 802: 0, {now}"),
        format!("cuStreamBatchMemOp_v2 901: 0, {now}"),
        "cuMemHostRegister_v2 1: 0, the driver does not map memory of the host for this context; then 0"
            .to_owned(),
        format!("cuStreamBatchMemOp_v2 1: 0, {absent}"),
        format!("cuStreamBatchMemOp_v2 801: 0, {absent}"),
        "done".to_owned(),
    ];
    assert_eq!(ending.lines, expected);
}

#[test]
fn a_kernel_is_stopped_in_its_middle_and_resumes_when_another_stream_needs_the_context() {
    let _lock = shared();
    let node = Node::with("0\n").without_manager().stepped().start();
    let mut tenant = node.tenant("alone", "preempt_calls").arguments("full 2").start();
    tenant.expect("launched");
    node.advance(10 * MS);
    assert_eq!(tenant.ask("stop"), "stopped");
    let before = node.row(&tenant).kernels_completed;
    // Longer than the whole kernel takes.
    node.advance(1200 * MS);
    let stopped = node.row(&tenant);
    assert_eq!((before, stopped.kernels_completed), (0, 0), "it has ended while it was stopped");
    tenant.send("beside");
    node.when("the kernel beside it", |ledger| {
        ledger
            .by_pid(tenant.pid())
            .filter(|row| row.kernels_submitted > stopped.kernels_submitted)
            .map(|_| ())
    });
    node.advance(1200 * MS);
    assert_eq!(node.row(&tenant).kernels_completed, 2, "it resumed, and both have ended");
    tenant.expect("beside");
    tenant.expect("done");
    tenant.finish().expect_success();
}

#[test]
fn without_controls_a_stream_is_stopped_at_its_gates() {
    let ending = run("--controls none", "outcomes 1");
    assert_eq!(ending.lines.len(), 2, "{:?}", ending.lines);
}
