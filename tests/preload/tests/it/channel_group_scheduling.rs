//! Channel-group scheduling by the real manager: it enables and disables the tenants' channel groups by quanta. The measurements are the
//! simulated GPU's ledger.

use nix::sys::signal::Signal;
use sluice_preload_tests::tenant::end;
use sluice_preload_tests::{MS, Node, Tenant, checks, eventually, exclusive, shared, tenant};
use sluice_test_bed::timeline;

const SECOND: u64 = 1_000 * MS;

fn node(resources: &str) -> Node {
    Node::with(resources).manager_arguments("--controls simulated").start()
}

fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns - from_ns) as f64 / SECOND as f64
}

/// Processes with 0.1 s of submitted work each, so that a busy machine does not leave the GPU idle.
fn busy(node: &Node, clients: &[&str]) -> Vec<Tenant> {
    tenant::busy(node, clients, "2000 50")
}

#[test]
fn two_busy_clients_share_by_quanta_according_to_their_requests() {
    // The promised two points of accuracy are tested on a machine without other work: grants follow the real clock.
    let _lock = exclusive();
    let node = node("2\nbe-a 0.3 1.0 8589934592\nbe-b 0.7 1.0 8589934592\n");
    let tenants = busy(&node, &["be-a", "be-b"]);
    let (begin, _) = node.let_pass(2 * SECOND);
    let measured = node.undisturbed(10 * SECOND);
    let window = node.window(measured.span);
    let expected: [(&[i32], f64); 2] = [(&[tenants[0].pid()], 0.3), (&[tenants[1].pid()], 0.7)];
    checks::shares(&window, &expected, 0.6, measured.taken).unwrap();
    let metrics = node.metrics();
    assert_eq!(metrics.sum("sluice_level", &["level=\"turn\""]), Some(2.0));
    assert_eq!(metrics.sum("sluice_steering_given_up_total", &[]), Some(0.0));
    let quanta = metrics.sum("sluice_turns_total", &[]).unwrap() / seconds(begin, node.ledger().gpu.now_ns);
    assert!((5.0 * (1.0 - measured.taken)..45.0).contains(&quanta), "{quanta} quanta in a second");
    end(tenants);
}

#[test]
fn two_busy_clients_beside_a_latency_critical_one_both_run() {
    // The promised two points of accuracy are tested on a machine without other work: grants follow the real clock.
    let _lock = exclusive();
    let node = node(
        "clients:\n  - { name: service, request: 0.2, memory: 1Gi, class: latency-critical }\n  - { name: be-a, request: 0.4, memory: 1Gi }\n  - { name: be-b, request: 0.4, memory: 1Gi }\n",
    );
    let tenants = busy(&node, &["be-a", "be-b"]);
    let mut service = node.tenant("service", "tenant").start();
    service.expect("ready");
    for _ in 0..50 {
        assert_eq!(service.ask("launch 1 1000"), "launched");
        assert_eq!(service.ask("sync"), "synced");
    }
    let measured = node.undisturbed(5 * SECOND);
    let (span, taken) = (measured.span, measured.taken);
    let pids: Vec<i32> = tenants.iter().map(Tenant::pid).collect();
    checks::shares(&node.window(span), &[(&pids[..1], 0.5), (&pids[1..], 0.5)], 0.6, taken).unwrap();
    for pid in pids {
        checks::runs_in_each(&node.windows(span, 5), pid, taken).unwrap();
        let stall = timeline::longest_gap(&node.timeline(span), &[pid], span.0, span.1);
        assert!(stall < 500 * MS + measured.taken_ns, "{pid} did not run for {} ms", stall / MS);
    }
    assert_eq!(service.ask("check"), "right");
    service.finish().expect_success();
    end(tenants);
}

#[test]
fn stopped_processes_run_again_when_the_manager_is_killed() {
    let _lock = shared();
    let mut node = node("2\nbe-a 0.5 1.0 8589934592\nbe-b 0.5 1.0 8589934592\n");
    let tenants = busy(&node, &["be-a", "be-b"]);
    node.let_pass(500 * MS);
    node.kill_manager();
    for tenant in &tenants {
        let seen = node.row(tenant).kernels_completed;
        node.when_completed(tenant, seen + 50);
    }
    node.start_manager();
    eventually("both to be hardware-scheduled again", || {
        (node.metrics().sum("sluice_level", &["level=\"turn\""]) == Some(2.0)).then_some(())
    });
    for tenant in &tenants {
        let seen = node.row(tenant).kernels_completed;
        node.when_completed(tenant, seen + 100);
    }
    end(tenants);
}

#[test]
fn best_effort_runs_again_when_a_busy_latency_critical_process_is_killed() {
    let _lock = shared();
    let node = node(
        "clients:\n  - { name: service, request: 0.2, memory: 1Gi, class: latency-critical }\n  - { name: be, request: 0.4, memory: 1Gi }\n",
    );
    let mut service = node.tenant("service", "tenant").start();
    service.expect("ready");
    let tenants = busy(&node, &["be"]);
    // A kernel of ten minutes, beside which a slice of 1 µs completes nothing.
    assert_eq!(service.ask("launch 1 600000000"), "launched");
    let kept = |node: &Node| {
        let before = node.row(&tenants[0]).kernels_completed;
        node.let_pass(200 * MS);
        node.row(&tenants[0]).kernels_completed == before
    };
    eventually("best effort to stop", || kept(&node).then_some(()));
    service.signal(Signal::SIGKILL);
    assert_eq!(service.ending().signal(), Some(9));
    let seen = node.row(&tenants[0]).kernels_completed;
    node.when_completed(&tenants[0], seen + 50);
    end(tenants);
}

#[test]
fn a_manager_that_ends_in_order_leaves_no_process_stopped() {
    let _lock = shared();
    let mut node = node("2\nbe-a 0.5 1.0 8589934592\nbe-b 0.5 1.0 8589934592\n");
    let tenants = busy(&node, &["be-a", "be-b"]);
    node.let_pass(500 * MS);
    node.end_manager();
    for tenant in &tenants {
        let seen = node.row(tenant).kernels_completed;
        node.when_completed(tenant, seen + 50);
    }
    end(tenants);
}

#[test]
fn without_driver_controls_all_processes_are_token_scheduled() {
    let _lock = shared();
    let node = Node::with("2\nbe-a 0.5 1.0 8589934592\nbe-b 0.5 1.0 8589934592\n")
        .manager_arguments("--controls simulated")
        .simulator_arguments("--controls none")
        .start();
    let tenants = busy(&node, &["be-a", "be-b"]);
    eventually("both to be at tokens", || {
        (node.metrics().sum("sluice_level", &["level=\"token\""]) == Some(2.0)).then_some(())
    });
    for tenant in &tenants {
        let seen = node.row(tenant).kernels_completed;
        node.when_completed(tenant, seen + 100);
    }
    end(tenants);
}

#[test]
fn contexts_created_and_destroyed_between_quanta_leave_no_process_stopped_or_disconnected() {
    let _lock = shared();
    let node = node("2\nbe-a 0.5 1.0 8589934592\nbe-b 0.5 1.0 8589934592\n");
    let tenants = busy(&node, &["be-a"]);
    let mut changing = node.tenant("be-b", "contexts").start();
    changing.expect("ready");
    assert_eq!(changing.ask("go"), "going");
    // Each change is announced while its process has a quantum, waits for one, or is being stopped.
    for round in 0..6 {
        assert_eq!(changing.ask("more"), "made");
        node.let_pass((20 + 13 * round) * MS);
        assert_eq!(changing.ask("less"), "destroyed");
        node.let_pass(30 * MS);
    }
    for tenant in tenants.iter().chain([&changing]) {
        let seen = node.row(tenant).kernels_completed;
        node.when_completed(tenant, seen + 100);
    }
    let metrics = node.metrics();
    assert_eq!(metrics.sum("sluice_level", &["level=\"turn\""]), Some(2.0));
    for (series, labels) in [
        ("sluice_steering_given_up_total", [].as_slice()),
        ("sluice_announcements_refused_total", &[]),
        ("sluice_processes_on_probation", &[]),
    ] {
        assert_eq!(metrics.sum(series, labels), Some(0.0), "{series}");
    }
    changing.finish().expect_success();
    end(tenants);
}
