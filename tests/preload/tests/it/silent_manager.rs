//! Effects of a pod-manager that hangs: it is stopped with SIGSTOP, so its connections stay open and nothing answers.
//!
//! The product lets tenants run 250 ms after the stop. Here the bound is a second, for small machines, and tests with this bound run alone.
//! The benchmark measures the milliseconds.

use sluice_comm::RequestKind;
use sluice_preload_tests::host_time::HostTime;
use sluice_preload_tests::recording_manager::{RecordingManager, Understands};
use sluice_preload_tests::tenant::{busy, end};
use sluice_preload_tests::{MIB, MS, Node, Tenant, eventually, exclusive, shared};
use sluice_sim::fault::ControlFault;
use sluice_test_bed::timeline;
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000 * MS;

const TWO: &str = "2\nbe-a 0.3 1.0 8589934592\nbe-b 0.7 1.0 8589934592\n";

/// Waits until both clients of a running manager have got so many more grants or quanta.
fn when_granted(node: &Node, metric: &str, more: f64) {
    for client in ["be-a", "be-b"] {
        let before = node.metric(metric, client);
        eventually("grants of the manager that runs again", || {
            (node.metric(metric, client) >= before + more).then_some(())
        });
    }
}

/// Waits until so many processes are hardware-scheduled.
fn when_hardware_scheduled(node: &Node, processes: f64) {
    eventually("hardware-scheduled processes", || {
        (node.metrics().sum("sluice_level", &["level=\"turn\""]) == Some(processes)).then_some(())
    });
}

/// Stops the manager and checks that each process has run within a second.
fn check_run_without_manager(node: &Node, tenants: &[Tenant]) {
    let host = HostTime::begin();
    node.stop_manager();
    let (stopped, _) = node.let_pass(0);
    let (_, now) = node.let_pass(3 * SECOND / 2);
    let timeline = node.timeline((stopped, now));
    for tenant in tenants {
        let gap = timeline::longest_gap(&timeline, &[tenant.pid()], stopped, now);
        let bound = SECOND + host.taken_ns();
        assert!(gap <= bound, "process {} did not run for {} ms", tenant.pid(), gap / MS);
    }
}

/// Checks that after its return the manager shares the GPU 3 : 7 again.
fn check_shares(node: &Node, tenants: &[Tenant]) {
    let mut last = 0.0;
    for _ in 0..5 {
        let window = node.window(node.undisturbed(4 * SECOND).span);
        last = window.share_of_busy(tenants[0].pid());
        if (last - 0.3).abs() < 0.1 {
            return;
        }
    }
    panic!("the share is {last:.3} instead of 0.3");
}

#[test]
fn token_scheduled_tenants_run_while_the_manager_is_stopped_and_are_granted_their_shares_afterwards() {
    let _lock = exclusive();
    let node = Node::start(TWO);
    let tenants = busy(&node, &["be-a", "be-b"], "2000 50");
    check_run_without_manager(&node, &tenants);
    node.resume_manager();
    when_granted(&node, "sluice_grants_total", 5.0);
    check_shares(&node, &tenants);
    end(tenants);
}

#[test]
fn disabled_tenants_run_while_the_manager_is_stopped_and_are_scheduled_afterwards() {
    let _lock = exclusive();
    let node = Node::with(TWO).manager_arguments("--controls simulated").start();
    let tenants = busy(&node, &["be-a", "be-b"], "2000 50");
    when_hardware_scheduled(&node, 2.0);
    check_run_without_manager(&node, &tenants);
    node.resume_manager();
    when_hardware_scheduled(&node, 2.0);
    when_granted(&node, "sluice_grants_total", 5.0);
    check_shares(&node, &tenants);
    assert_eq!(node.metrics().sum("sluice_steering_given_up_total", &[]), Some(0.0));
    end(tenants);
}

/// A manager that runs again may disable a tenant before the tenant has connected again. If it then hangs again, the tenant recovers again.
#[test]
fn disabled_tenants_run_when_the_manager_hangs_again_right_after_it_ran() {
    let _lock = exclusive();
    let node = Node::with(TWO).manager_arguments("--controls simulated").start();
    let tenants = busy(&node, &["be-a", "be-b"], "2000 50");
    when_hardware_scheduled(&node, 2.0);
    node.stop_manager();
    for ran_ms in [2, 10, 80] {
        node.let_pass(SECOND);
        node.resume_manager();
        std::thread::sleep(Duration::from_millis(ran_ms));
        check_run_without_manager(&node, &tenants);
    }
    node.resume_manager();
    when_hardware_scheduled(&node, 2.0);
    when_granted(&node, "sluice_grants_total", 5.0);
    end(tenants);
}

/// Beside a latency-critical process best-effort groups have a slice of 1 µs. Two of them with such slices would complete nothing.
#[test]
fn tenants_with_the_shortest_slice_run_while_the_manager_is_stopped() {
    let _lock = exclusive();
    let resources = "clients:\n  - { name: service, request: 0.2, memory: 1Gi, class: latency-critical }\n  - { name: be-a, request: 0.4, memory: 1Gi }\n  - { name: be-b, request: 0.4, memory: 1Gi }\n";
    let node = Node::with(resources).manager_arguments("--controls simulated").start();
    let mut service = node.tenant("service", "tenant").start();
    service.expect("ready");
    assert_eq!(service.ask("launch 1 1000"), "launched");
    let tenants = busy(&node, &["be-a", "be-b"], "2000 50");
    when_hardware_scheduled(&node, 3.0);
    check_run_without_manager(&node, &tenants);
    assert_eq!(service.ask("launch 1 1000"), "launched");
    assert_eq!(service.ask("sync"), "synced");
    node.resume_manager();
    when_granted(&node, "sluice_grants_total", 5.0);
    assert_eq!(service.ask("check"), "right");
    service.finish().expect_success();
    end(tenants);
}

#[test]
fn allocations_are_answered_while_the_manager_is_stopped_and_reported_afterwards() {
    let _lock = exclusive();
    let node = Node::start("2\nold 0.5 1.0 8589934592\nnew 0.5 1.0 8589934592\n");
    let mut old = node.tenant("old", "tenant").start();
    old.expect("ready");
    // With a grant page it reads the heartbeat.
    assert_eq!(old.ask("launch 1 100"), "launched");
    assert_eq!(old.ask("sync"), "synced");
    assert!(old.ask(&format!("take alloc {MIB}")).starts_with("took"));
    let before = node.metric("sluice_memory_used_bytes", "old");
    node.stop_manager();
    let begun = Instant::now();
    for _ in 0..10 {
        assert!(old.ask(&format!("take alloc {MIB}")).starts_with("took"));
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "ten allocations took {:?}", begun.elapsed());
    // A process that starts meanwhile has no grant page yet.
    let mut new = node.tenant("new", "tenant").start();
    new.expect("ready");
    let begun = Instant::now();
    assert!(new.ask(&format!("take alloc {}", 3 * MIB)).starts_with("took"));
    assert_eq!(new.ask("launch 1 100"), "launched");
    assert_eq!(new.ask("sync"), "synced");
    assert!(begun.elapsed() < Duration::from_secs(2), "the first allocation took {:?}", begun.elapsed());
    node.resume_manager();
    for (client, bytes) in [("old", before + (10 * MIB) as f64), ("new", (3 * MIB) as f64)] {
        eventually("the memory to be reported", || {
            (node.metric("sluice_memory_used_bytes", client) >= bytes).then_some(())
        });
    }
    assert_eq!(node.metric("sluice_memory_used_bytes", "old"), before + (10 * MIB) as f64);
    for tenant in [old, new] {
        tenant.finish().expect_success();
    }
}

/// Each process has the whole limit only while the manager is stopped. When it runs again, it does not forget what a process holds that has
/// lost both connections.
#[test]
fn memory_of_a_process_that_lost_the_manager_is_not_granted_to_another_one_of_its_client() {
    let _lock = shared();
    let node = Node::start(&format!("1\nmain 0.5 1.0 {}\n", 64 * MIB));
    let mut tenants = [(); 2].map(|()| {
        let mut tenant = node.tenant("main", "tenant").start();
        tenant.expect("ready");
        // With a grant page it reads the heartbeat.
        assert_eq!(tenant.ask("launch 1 100"), "launched");
        assert_eq!(tenant.ask("sync"), "synced");
        tenant
    });
    assert!(tenants[0].ask(&format!("take alloc {}", 40 * MIB)).starts_with("took"));
    for _ in 0..4 {
        node.stop_manager();
        node.let_pass(SECOND);
        // It finds that the manager is silent, and closes its connection.
        assert!(tenants[0].ask(&format!("take alloc {MIB}")).starts_with("took"));
        node.resume_manager();
        node.metric("sluice_memory_used_bytes", "main");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            assert_eq!(tenants[1].ask(&format!("take alloc {}", 32 * MIB)), "refused 2");
        }
    }
    assert!(node.metric("sluice_memory_used_bytes", "main") >= (44 * MIB) as f64);
    for tenant in tenants {
        tenant.finish().expect_success();
    }
}

/// The limit that still refuses allocations is the size that the program sees.
#[test]
fn last_limit_is_the_size_of_the_gpu_while_the_manager_is_away() {
    let _lock = shared();
    let mut node = Node::start(&format!("1\nmain 0.5 1.0 {}\n", 64 * MIB));
    let mut tenant = node.tenant("main", "tenant").start();
    tenant.expect("ready");
    assert!(tenant.ask(&format!("take alloc {}", 16 * MIB)).starts_with("took"));
    node.kill_manager();
    assert_eq!(tenant.ask("info"), format!("{} {}", 48 * MIB, 64 * MIB));
    assert_eq!(tenant.ask("total"), (64 * MIB).to_string());
    assert_eq!(tenant.ask(&format!("take alloc {}", 49 * MIB)), "refused 2");
    assert!(tenant.ask(&format!("take alloc {}", 48 * MIB)).starts_with("took"));
    assert_eq!(tenant.ask("info"), format!("0 {}", 64 * MIB));
    tenant.finish().expect_success();
}

#[test]
fn fail_closed_tenants_hold_while_the_manager_is_stopped() {
    let _lock = shared();
    let node = Node::with(TWO).manager_arguments("--on-manager-loss closed --controls simulated").start();
    let tenants = busy(&node, &["be-a", "be-b"], "2000 50");
    when_hardware_scheduled(&node, 2.0);
    node.stop_manager();
    // Work that was submitted before runs to its end.
    node.let_pass(2 * SECOND);
    let submitted = || tenants.iter().map(|tenant| node.row(tenant).kernels_submitted).collect::<Vec<_>>();
    let held = submitted();
    node.let_pass(SECOND);
    assert_eq!(submitted(), held, "they launched without a manager");
    node.resume_manager();
    for (tenant, held) in tenants.iter().zip(held) {
        node.when_completed(tenant, held + 200);
    }
    end(tenants);
}

/// A manager that hangs and is then killed and replaced.
#[test]
fn tenants_attach_to_the_successor_of_a_stopped_manager() {
    let _lock = exclusive();
    let mut node = Node::start(TWO);
    let tenants = busy(&node, &["be-a", "be-b"], "2000 50");
    check_run_without_manager(&node, &tenants);
    node.kill_manager();
    node.start_manager();
    when_granted(&node, "sluice_grants_total", 5.0);
    end(tenants);
}

/// A process that attaches has no page whose heartbeat it could read.
#[test]
fn process_runs_whose_manager_stops_between_attach_and_its_answer() {
    let _lock = exclusive();
    let node = Node::with("1\nmain 0.5 1.0 8589934592\n").without_manager().start();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    manager.hang_at(RequestKind::Attach);
    let mut tenant = node.tenant("main", "tenant").start();
    tenant.expect("ready");
    let begun = Instant::now();
    assert!(tenant.ask(&format!("take alloc {MIB}")).starts_with("took"));
    assert_eq!(tenant.ask("launch 1 100"), "launched");
    assert_eq!(tenant.ask("sync"), "synced");
    assert!(begun.elapsed() < Duration::from_secs(2), "its first work took {:?}", begun.elapsed());
    tenant.finish().expect_success();
}

/// A page of version 2 has no heartbeat. The manager has read the request for a grant, so the connection shows nothing either.
#[test]
fn process_runs_whose_manager_without_heartbeat_never_answers_a_request_for_a_grant() {
    let _lock = shared();
    let node = Node::with("1\nmain 0.5 1.0 8589934592\n").without_manager().start();
    let manager = RecordingManager::start(&node.socket(), Understands::SecondVersion);
    manager.hang_at(RequestKind::Quota);
    let mut tenant = node.tenant("main", "tenant").start();
    tenant.expect("ready");
    assert_eq!(tenant.ask("launch 1 100"), "launched");
    assert_eq!(tenant.ask("sync"), "synced");
    tenant.finish().expect_success();
}

/// A driver that sets no slices. The manager runs for a moment, disables the process again and is gone.
#[test]
fn groups_are_enabled_again_after_a_second_loss_although_their_slices_cannot_be_restored() {
    let _lock = shared();
    let node = Node::with("1\nmain 0.5 1.0 8589934592\n").without_manager().stepped().start();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    let mut tenant = node.tenant("main", "contexts").start();
    tenant.expect("ready");
    let announced = manager.announcement(0);
    assert_eq!(tenant.ask("go"), "going");
    let runs = || {
        let seen = node.row(&tenant).kernels_completed;
        node.when_completed(&tenant, seen + 20);
    };
    runs();
    node.set_control_fault(ControlFault::SlicesRefused);
    node.during(|| announced.stop());
    manager.beat_once();
    // Its heartbeat expires.
    runs();
    manager.accept_no_more();
    node.during(|| announced.stop());
    manager.beat_once();
    runs();
    tenant.finish().expect_success();
}
