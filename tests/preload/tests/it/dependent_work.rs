//! Work that waits for other work of the same client: processes that take turns, contexts that are used in turn, and ranks that wait for
//! each other on the GPU.

use sluice_preload_tests::{Node, shared};

/// Kernels of half a millisecond.
const MICROS: u32 = 500;

fn beside_an_idle_latency_critical_client() -> Node {
    let resources = "clients:\n  - { name: service, request: 0.2, memory: 1Gi, class: latency-critical }\n  - { name: pair, request: 0.4, memory: 1Gi }\n";
    Node::with(resources).manager_arguments("--controls simulated").start()
}

/// Round trips of `relay` in this form, beside a latency-critical client that is attached and does nothing, need no hand-offs. A hand-off
/// takes two controls, and there are 160 controls a second at most.
fn check_turns(form: &str, turns: u32) {
    let _lock = shared();
    let node = beside_an_idle_latency_critical_client();
    let mut service = node.tenant("service", "tenant").start();
    service.expect("ready");
    let mut relay = node.tenant("pair", "relay").arguments(&format!("{turns} {MICROS} {form}")).start();
    relay.expect("ready");
    let controls = || node.metrics().sum("sluice_controls_total", &[]).expect("a counter");
    let before = controls();
    assert_eq!(relay.ask("go"), "done");
    let made = controls() - before;
    assert!(made < f64::from(turns) / 10.0, "{made} controls for {turns} round trips");
    relay.finish().expect_success();
    service.finish().expect_success();
}

#[test]
fn two_processes_of_a_client_that_take_turns_need_no_hand_offs_beside_an_idle_latency_critical_client() {
    check_turns("processes", 400);
}

#[test]
fn two_contexts_that_are_used_in_turn_need_no_hand_offs_beside_an_idle_latency_critical_client() {
    check_turns("contexts", 400);
}

/// Grants only, and no other client. A rank could not return its grant while it waited for the other one, which had none.
#[test]
fn ranks_that_wait_for_each_other_on_the_gpu_keep_their_grant_while_no_other_client_waits() {
    let _lock = shared();
    let node = Node::start("2\npair 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n");
    let mut ring = node.tenant("pair", "ring").arguments(&format!("6000 {MICROS}")).start();
    ring.expect("done");
    let metrics = node.metrics();
    assert_eq!(metrics.sum("sluice_grants_not_returned_total", &["client=\"pair\""]), Some(0.0));
    ring.finish().expect_success();
}
