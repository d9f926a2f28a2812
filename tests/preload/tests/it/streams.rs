//! Streams of all kinds while grants come and go: capture, per-thread defaults, streams that are destroyed.

use sluice_preload_tests::{Node, Tenant, shared};

const TWO: &str = "2\nmain 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n";

/// Another client that is always busy, so that every grant ends at its deadline.
fn rival(node: &Node) -> Tenant {
    let mut rival = node.tenant("other", "busy").arguments("500 8").start();
    rival.expect("ready");
    node.when_completed(&rival, 8);
    rival
}

fn beside_a_rival(program: &str, arguments: &str) {
    let _lock = shared();
    let node = Node::start(TWO);
    let rival = rival(&node);
    let tenant = node.tenant("main", program).arguments(arguments).start();
    tenant.finish().expect_success();
    assert!(node.metric("sluice_grants_total", "main") >= 2.0, "grants must expire during the test");
    rival.finish().expect_success();
}

#[test]
fn a_capture_in_global_mode_survives_grants_that_expire_meanwhile() {
    beside_a_rival("capture", "global 8");
}

#[test]
fn a_capture_in_thread_local_mode_survives_grants_that_expire_meanwhile() {
    beside_a_rival("capture", "local 8");
}

#[test]
fn a_capture_in_relaxed_mode_survives_grants_that_expire_meanwhile() {
    beside_a_rival("capture", "relaxed 8");
}

#[test]
fn per_thread_default_streams_are_governed_and_complete() {
    beside_a_rival("streams", "perthread");
}

#[test]
fn streams_may_be_destroyed_with_work_in_flight() {
    beside_a_rival("streams", "destroyed");
}

#[test]
fn queried_events_complete_while_streams_are_created_and_destroyed() {
    beside_a_rival("streams", "asked");
}

#[test]
fn contexts_may_be_created_and_destroyed() {
    beside_a_rival("streams", "contexts");
}

#[test]
fn signals_interrupt_neither_the_wait_for_a_token_nor_an_allocation() {
    beside_a_rival("signals", "");
}

/// Work of a program that keeps a capture open: programs/capturing.c.
fn work_during_a_capture_is_charged(arguments: &str) {
    let _lock = shared();
    let node = Node::with(TWO).manager_arguments("--controls off").start();
    let rival = rival(&node);
    let mut tenant = node.tenant("main", "capturing").arguments(arguments).start();
    tenant.expect("ready");
    node.when_completed(&tenant, 600);
    let used = node.row(&tenant).gpu_ns as f64 / 1e9;
    let charged = node.metric("sluice_gpu_seconds_total", "main");
    // The running grant is charged at its end.
    assert!(charged > 0.75 * used, "{charged} of {used} s were charged");
    tenant.finish().expect_success();
    rival.finish().expect_success();
}

#[test]
fn work_on_the_default_stream_during_a_capture_is_charged() {
    work_during_a_capture_is_charged("5000");
}

#[test]
fn work_on_a_threads_own_default_stream_during_a_capture_is_charged_while_streams_can_be_preempted() {
    work_during_a_capture_is_charged("5000 own");
}

/// Whether the commands of a program need grants: programs/commands.c, for a second beside a rival.
fn grants_for(what: &str) -> (f64, f64) {
    let _lock = shared();
    let node = Node::with(TWO).manager_arguments("--controls off").start();
    let rival = rival(&node);
    let tenant = node.tenant("main", "commands").arguments(&format!("{what} 1")).start();
    tenant.finish().expect_success();
    rival.finish().expect_success();
    (node.metric("sluice_grants_total", "main"), node.metric("sluice_gpu_seconds_total", "main"))
}

#[test]
fn memsets_and_copies_within_the_gpu_need_grants_and_are_charged() {
    for what in ["set", "set_waiting", "copy", "copy_waiting"] {
        let (grants, seconds) = grants_for(what);
        assert!(grants >= 1.0 && seconds > 0.0, "{what}: {grants} grants, {seconds} s");
    }
}

#[test]
fn copies_from_the_host_need_no_grant() {
    assert_eq!(grants_for("to_gpu").0, 0.0);
}
