//! Turns that the GPU keeps, under the real manager: channel groups of tenants are stopped and started from outside. The witness
//! is the simulated GPU's own ledger.

use nix::sys::signal::Signal;
use sluice_preload_tests::tenant::end;
use sluice_preload_tests::{MS, Node, Tenant, exclusive, shared, checks, eventually, tenant};

const SECOND: u64 = 1_000 * MS;

fn node(resources: &str) -> Node {
    Node::with(resources).manager_arguments("--controls simulated").start()
}

/// Processes with a tenth of a second of work at a time, so that a busy machine does not leave the GPU idle.
fn busy(node: &Node, clients: &[&str]) -> Vec<Tenant> {
    tenant::busy(node, clients, "2000 50")
}

#[test]
fn two_busy_clients_share_by_turns_as_their_requests_say() {
    let _lock = exclusive();
    let node = node("2\nbe-a 0.3 1.0 8589934592\nbe-b 0.7 1.0 8589934592\n");
    let tenants = busy(&node, &["be-a", "be-b"]);
    node.let_pass(2 * SECOND);
    let span = node.let_pass(20 * SECOND);
    let window = node.window(span);
    checks::shares(&window, &[(&[tenants[0].pid()], 0.3), (&[tenants[1].pid()], 0.7)], 0.6).unwrap();
    let metrics = node.metrics();
    assert_eq!(metrics.sum("sluice_level", &["level=\"turn\""]), Some(2.0));
    assert_eq!(metrics.sum("sluice_steering_given_up_total", &[]), Some(0.0));
    let turns = metrics.sum("sluice_turns_total", &[]).unwrap();
    assert!((100.0..1000.0).contains(&turns), "{turns} turns in some twenty seconds");
    end(tenants);
}

#[test]
fn beside_a_latency_critical_client_two_busy_ones_take_turns_and_nobody_is_left_stopped() {
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
    let span = node.let_pass(5 * SECOND);
    let pids: Vec<i32> = tenants.iter().map(Tenant::pid).collect();
    checks::shares(&node.window(span), &[(&pids[..1], 0.5), (&pids[1..], 0.5)], 0.6).unwrap();
    for pid in pids {
        let stall = checks::longest_stall(&node.timeline(span), pid, span);
        assert!(stall < 500 * MS, "{pid} stood still for {} ms", stall / MS);
    }
    assert_eq!(service.ask("check"), "right");
    service.finish().expect_success();
    end(tenants);
}

#[test]
fn when_the_manager_is_killed_whoever_it_had_stopped_goes_on() {
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
    eventually("both to be steered again", || {
        (node.metrics().sum("sluice_level", &["level=\"turn\""]) == Some(2.0)).then_some(())
    });
    for tenant in &tenants {
        let seen = node.row(tenant).kernels_completed;
        node.when_completed(tenant, seen + 100);
    }
    end(tenants);
}

#[test]
fn when_a_latency_critical_process_is_killed_amid_its_work_whoever_it_kept_from_the_gpu_goes_on() {
    let _lock = shared();
    let node = node(
        "clients:\n  - { name: service, request: 0.2, memory: 1Gi, class: latency-critical }\n  - { name: be, request: 0.4, memory: 1Gi }\n",
    );
    let mut service = node.tenant("service", "tenant").start();
    service.expect("ready");
    let tenants = busy(&node, &["be"]);
    // A kernel of ten minutes, beside which a slice of a microsecond gets nowhere.
    assert_eq!(service.ask("launch 1 600000000"), "launched");
    let kept = |node: &Node| {
        let before = node.row(&tenants[0]).kernels_completed;
        node.let_pass(200 * MS);
        node.row(&tenants[0]).kernels_completed == before
    };
    eventually("best effort to stand", || kept(&node).then_some(()));
    service.signal(Signal::SIGKILL);
    assert_eq!(service.ending().signal(), Some(9));
    let seen = node.row(&tenants[0]).kernels_completed;
    node.when_completed(&tenants[0], seen + 50);
    end(tenants);
}

#[test]
fn a_manager_that_ends_in_order_leaves_nobody_stopped_either() {
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
fn on_a_driver_without_controls_everybody_takes_turns_by_token() {
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
fn contexts_that_come_and_go_between_turns_leave_nobody_stopped_or_hung_up_on() {
    let _lock = shared();
    let node = node("2\nbe-a 0.5 1.0 8589934592\nbe-b 0.5 1.0 8589934592\n");
    let tenants = busy(&node, &["be-a"]);
    let mut fickle = node.tenant("be-b", "steered").start();
    fickle.expect("ready");
    assert_eq!(fickle.ask("go"), "going");
    // Each change is told while its process has a turn, waits for one, or is being stopped.
    for round in 0..6 {
        assert_eq!(fickle.ask("more"), "made");
        node.let_pass((20 + 13 * round) * MS);
        assert_eq!(fickle.ask("less"), "destroyed");
        node.let_pass(30 * MS);
    }
    for tenant in tenants.iter().chain([&fickle]) {
        let seen = node.row(tenant).kernels_completed;
        node.when_completed(tenant, seen + 100);
    }
    let metrics = node.metrics();
    assert_eq!(metrics.sum("sluice_level", &["level=\"turn\""]), Some(2.0));
    for (series, labels) in [
        ("sluice_steering_given_up_total", [].as_slice()),
        ("sluice_announcements_refused_total", &[]),
        ("sluice_refused_connections_total", &["reason=\"not_freed\""]),
    ] {
        assert_eq!(metrics.sum(series, labels), Some(0.0), "{series}");
    }
    fickle.finish().expect_success();
    end(tenants);
}

#[test]
fn without_controls_a_busy_latency_critical_client_leaves_the_others_their_least_share() {
    let _lock = exclusive();
    let node = Node::with(
        "clients:\n  - { name: service, request: 0.2, memory: 1Gi, class: latency-critical }\n  - { name: batch, request: 0.8, memory: 1Gi }\n",
    )
    .manager_arguments("--controls off --gates auto --gate-share 0.1")
    .start();
    let tenants = busy(&node, &["batch"]);
    let mut service = node.tenant("service", "tenant").start();
    service.expect("ready");
    assert_eq!(service.ask("launch 1 600000000"), "launched");
    eventually("the gates to be closed", || {
        (node.metrics().sum("sluice_gate_closed", &[]) == Some(1.0)).then_some(())
    });
    node.let_pass(SECOND);
    let span = node.let_pass(10 * SECOND);
    let share = node.window(span).share_of_time(tenants[0].pid());
    assert!((0.02..0.2).contains(&share), "it had {share:.4} of the GPU's time");
    let forced = node.metrics().sum("sluice_gate_changes_total", &["to=\"forced\""]).unwrap();
    assert!((5.0..30.0).contains(&forced), "{forced} times in some ten seconds");
    service.signal(nix::sys::signal::Signal::SIGKILL);
    eventually("the gates to be open", || {
        (node.metrics().sum("sluice_gate_closed", &[]) == Some(0.0)).then_some(())
    });
    let seen = node.row(&tenants[0]).kernels_completed;
    node.when_completed(&tenants[0], seen + 50);
    end(tenants);
}

#[test]
fn without_controls_what_was_submitted_stands_while_somebody_latency_critical_is_busy() {
    let _lock = shared();
    let node = Node::with(
        "clients:\n  - { name: service, request: 0.2, memory: 1Gi, class: latency-critical }\n  - { name: batch, request: 0.8, memory: 1Gi }\n",
    )
    .manager_arguments("--controls off --gates auto --gate-share 0")
    .start();
    let mut service = node.tenant("service", "tenant").start();
    service.expect("ready");
    // It is known to the manager from its first work on.
    assert_eq!(service.ask("launch 1 100"), "launched");
    assert_eq!(service.ask("sync"), "synced");
    let tenants = busy(&node, &["batch"]);
    let runs = |tenant: &Tenant| {
        let seen = node.row(tenant).kernels_completed;
        node.when_completed(tenant, seen + 100);
    };
    let completed = || {
        let before = node.row(&tenants[0]).kernels_completed;
        node.let_pass(100 * MS);
        node.row(&tenants[0]).kernels_completed - before
    };
    // What is in the default stream is held back before it is submitted.
    eventually("gates in front of its work", || {
        (node.metrics().sum("sluice_level", &["level=\"host\""]) == Some(1.0)).then_some(())
    });
    runs(&tenants[0]);
    assert_eq!(service.ask("launch 1 600000000"), "launched");
    // Its grant is not over, nor is what it has submitted: a tenth of a second of kernels.
    eventually("the others to stand", || (completed() == 0).then_some(()));
    assert_eq!(completed(), 0);
    service.signal(nix::sys::signal::Signal::SIGKILL);
    runs(&tenants[0]);
    let metrics = node.metrics();
    assert_eq!(metrics.sum("sluice_grants_not_returned_total", &["client=\"batch\""]), Some(0.0));
    end(tenants);
}
