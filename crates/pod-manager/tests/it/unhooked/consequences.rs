//! What follows from violations: the policy, and how long a process is stopped.

use super::harness::{Harness, S};
use crate::support::agent::{pod, uid};
use crate::support::until;
use sluice_pod_manager::ViolationPolicy;
use sluice_proto::control::{Class, Client};

const KIND: &str = "stopped_group_ran";

fn limited(n: usize) -> Client {
    Client { limit_ppm: 500_000, ..pod(&uid(n)) }
}

/// Two busy clients, of which the first enables its group as often as it is disabled; with their processes.
fn with_violator(clients: &[Client], policy: ViolationPolicy) -> (Harness, impl Sized + use<>) {
    let node = Harness::with_policy(clients, policy);
    let processes = (node.hooked(1, 1), node.hooked(2, 2));
    node.pass(1000);
    node.world.driver.run_while_disabled(1);
    (node, processes)
}

fn until_violations(node: &Harness, count: f64) {
    until("the violations are counted", || {
        node.pass(100);
        node.violations(1, KIND) >= count
    });
}

fn until_stopped(node: &Harness, stopped: f64) {
    until("the process is stopped or released", || {
        node.pass(100);
        node.metric("sluice_stopped_processes", 1, "") == stopped
    });
}

#[test]
fn repeated_violation_stops_the_process_of_a_limited_client_for_10_s_and_then_for_20_s() {
    let (mut node, _processes) = with_violator(&[limited(1), limited(2)], ViolationPolicy::Auto);
    let rest_of_stop = |node: &Harness| {
        let (mut ms, mut ran) = (0, false);
        loop {
            let is_enabled = node.group(1).0;
            if node.metric("sluice_stopped_processes", 1, "") == 0.0 {
                return (ms, ran);
            }
            node.pass(100);
            (ms, ran) = (ms + 100, ran | is_enabled);
        }
    };
    until_stopped(&node, 1.0);
    assert!(node.violations(1, KIND) >= 2.0, "the first finding stops no process");
    node.pass(50);
    // It is disabled anew while it is found to run.
    let (ms, ran) = rest_of_stop(&node);
    assert!((9_500..=10_100).contains(&ms) && !ran, "{ms} ms, enabled by the manager: {ran}");
    until_stopped(&node, 1.0);
    let (ms, _) = rest_of_stop(&node);
    assert!((19_500..=20_100).contains(&ms), "{ms} ms");
    assert_eq!(node.metric("sluice_stopped_processes", 2, ""), 0.0);
    let notes: Vec<String> = node.agent.violations(0).into_iter().map(|violation| violation.note).collect();
    assert!(notes.iter().any(|note| note.ends_with("; the process is stopped for 20 s")), "{notes:?}");
}

#[test]
fn process_of_a_client_without_a_limit_is_reported_only() {
    let (mut node, _processes) = with_violator(&[pod(&uid(1)), pod(&uid(2))], ViolationPolicy::Auto);
    until_violations(&node, 3.0);
    assert_eq!(node.metric("sluice_stopped_processes", 1, ""), 0.0);
    assert!(node.agent.violations(0).iter().all(|violation| !violation.evict));
}

#[test]
fn policy_report_stops_no_process_of_a_limited_client() {
    let (node, _processes) = with_violator(&[limited(1), limited(2)], ViolationPolicy::Report);
    until_violations(&node, 3.0);
    assert_eq!(node.metric("sluice_stopped_processes", 1, ""), 0.0);
}

#[test]
fn policy_stop_concerns_clients_without_a_limit_too() {
    let (node, _processes) = with_violator(&[pod(&uid(1)), pod(&uid(2))], ViolationPolicy::Stop);
    until_stopped(&node, 1.0);
}

#[test]
fn policy_evict_asks_for_the_eviction_at_the_repetition_and_stops_the_process_meanwhile() {
    let (mut node, _processes) = with_violator(&[limited(1), limited(2)], ViolationPolicy::Evict);
    until_violations(&node, 1.0);
    let first = node.agent.violations(0).remove(0);
    assert!(!first.evict, "a single finding");
    until("the agent is asked to evict", || {
        node.pass(100);
        let last = node.agent.violations(0).pop();
        last.is_some_and(|last| last.evict && last.pod_uid == uid(1))
    });
    assert_eq!(node.metric("sluice_stopped_processes", 1, ""), 1.0);
}

#[test]
fn removed_client_has_no_stopped_process() {
    let (mut node, _processes) = with_violator(&[limited(1), limited(2)], ViolationPolicy::Auto);
    until_stopped(&node, 1.0);
    node.agent.set(&[limited(2)]);
    node.pass(500);
    assert!(node.group(1).0, "its group is enabled");
    assert!(node.agent.snapshot().clients.iter().all(|client| client.stopped_processes == 0));
    assert!(node.world.clock.now() > S);
}

#[test]
fn process_of_a_pod_that_becomes_latency_critical_is_released() {
    let (mut node, _processes) = with_violator(&[limited(1), limited(2)], ViolationPolicy::Auto);
    until_stopped(&node, 1.0);
    node.agent.set(&[Client { class: Class::LatencyCritical.into(), ..limited(1) }, limited(2)]);
    // Less than the shortest stop.
    node.pass(500);
    assert!(node.group(1).0, "its group is enabled");
    assert_eq!(node.metric("sluice_stopped_processes", 1, ""), 0.0);
}
