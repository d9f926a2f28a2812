//! Programs of pods that run without the hook, steered by the pod-manager all the same: judged by the simulated GPU's ledger.

use sluice_preload_tests::machine_lock::{exclusive, shared};
use sluice_preload_tests::pod_bed::PodBed;
use sluice_preload_tests::{MS, Tenant, eventually};
use sluice_proto::control::Class::{BestEffort, LatencyCritical};

/// A busy program of a pod without the hook; it runs kernels when this returns.
fn raw(pods: &PodBed, n: usize) -> Tenant {
    let mut tenant = pods.tenant(n, "busy").without_hook().arguments("1000 8").start();
    tenant.expect("ready");
    pods.node.when_completed(&tenant, 16);
    tenant
}

/// The same with it.
fn hooked(pods: &PodBed, n: usize, arguments: &str) -> Tenant {
    let mut tenant = pods.tenant(n, "busy").arguments(arguments).start();
    tenant.expect("ready");
    pods.node.when_completed(&tenant, 16);
    tenant
}

/// Whether a process's contexts may run, and their time slice.
fn group(pods: &PodBed, tenant: &Tenant) -> (bool, u64) {
    let ledger = pods.node.ledger();
    let found = ledger.groups.iter().find(|group| group.pid == tenant.pid());
    found.map(|group| (group.is_enabled, group.timeslice_ns)).unwrap_or_else(|| panic!("it has no context"))
}

#[test]
fn a_program_without_the_hook_has_its_pods_share_and_no_more() {
    let _lock = exclusive();
    let Some(pods) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], "") else { return };
    let (first, second) = (raw(&pods, 1), hooked(&pods, 2, "1000 8"));
    pods.when_scheduled_without_hook(1, 1.0);
    // What the other one announces was looked at from outside, and believed.
    eventually("both to take turns", || {
        (pods.figure("sluice_level", &["level=\"turn\""]) == 2.0).then_some(())
    });
    assert_eq!(pods.figure("sluice_announcements_refused_total", &[]), 0.0);
    let window = pods.node.window(pods.node.let_pass(6000 * MS));
    let share = window.share_of_busy(first.pid());
    assert!((0.27..0.33).contains(&share), "{share}");
    assert!(pods.metric("sluice_gpu_seconds_total", 1, &[]) > 1.0);
    for tenant in [first, second] {
        tenant.finish().expect_success();
    }
}

#[test]
fn left_alone_by_the_manager_it_takes_what_it_can_get() {
    let _lock = exclusive();
    let clients = [(1, BestEffort, 30), (2, BestEffort, 70)];
    let Some(pods) = PodBed::start(&clients, "--adopt=off") else { return };
    let (first, _second) = (raw(&pods, 1), hooked(&pods, 2, "1000 8"));
    let window = pods.node.window(pods.node.let_pass(6000 * MS));
    assert!(window.share_of_busy(first.pid()) > 0.4);
    assert_eq!(pods.metric("sluice_adopted_processes", 1, &[]), 0.0);
}

#[test]
fn beside_somebody_latency_critical_it_has_the_shortest_slice() {
    let _lock = shared();
    let Some(pods) = PodBed::start(&[(1, BestEffort, 30), (3, LatencyCritical, 20)], "") else { return };
    let first = raw(&pods, 1);
    pods.when_scheduled_without_hook(1, 1.0);
    assert_eq!(group(&pods, &first), (true, 2_048_000));
    let critical = hooked(&pods, 3, "100 1");
    eventually("its slice to be short", || (group(&pods, &first).1 == 1_000).then_some(()));
    critical.finish().expect_success();
    eventually("its slice to be the driver's", || (group(&pods, &first) == (true, 2_048_000)).then_some(()));
    first.finish().expect_success();
}

#[test]
fn killed_while_it_stands_it_leaves_no_memory_behind() {
    let _lock = shared();
    let Some(pods) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], "") else { return };
    let first = raw(&pods, 1);
    let second = hooked(&pods, 2, "1000 8");
    pods.when_scheduled_without_hook(1, 1.0);
    eventually("it to stand", || (!group(&pods, &first).0).then_some(()));
    drop(first);
    second.finish().expect_success();
    pods.node.when("all memory to be free", |ledger| (ledger.gpu.memory_used == 0).then_some(()));
    pods.when_scheduled_without_hook(1, 0.0);
}

#[test]
fn a_manager_that_is_killed_is_followed_by_one_that_steers_it_again() {
    let _lock = shared();
    let Some(mut pods) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], "") else { return };
    let (first, second) = (raw(&pods, 1), hooked(&pods, 2, "1000 8"));
    pods.when_scheduled_without_hook(1, 1.0);
    eventually("it to stand", || {
        if group(&pods, &first).0 {
            return None;
        }
        pods.kill_manager();
        let stands = !group(&pods, &first).0;
        if !stands {
            pods.start_manager();
            pods.when_scheduled_without_hook(1, 1.0);
        }
        stands.then_some(())
    });
    pods.start_manager();
    pods.when_scheduled_without_hook(1, 1.0);
    for tenant in [&first, &second] {
        let seen = pods.node.row(tenant).kernels_completed;
        pods.node.when_completed(tenant, seen + 100);
    }
    for tenant in [first, second] {
        tenant.finish().expect_success();
    }
}

#[test]
fn groups_of_another_gpu_and_programs_of_no_client_are_nobodys() {
    let _lock = shared();
    let other = "--gpu-uuid GPU-fedcba98-89ab-cdef-0123-456789abcdef";
    let Some(pods) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], other) else { return };
    let first = raw(&pods, 1);
    pods.node.let_pass(6000 * MS);
    assert_eq!(pods.metric("sluice_adopted_processes", 1, &[]), 0.0);
    assert_eq!(pods.metric("sluice_unsteered_processes", 1, &[]), 0.0);
    assert_eq!(group(&pods, &first), (true, 2_048_000));
    drop((first, pods));
    let Some(pods) = PodBed::start(&[(2, BestEffort, 70)], "") else { return };
    let (first, second) = (raw(&pods, 1), raw(&pods, 2));
    pods.when_scheduled_without_hook(2, 1.0);
    let ledger = pods.node.ledger();
    assert_eq!(ledger.by_pid(first.pid()).map(|row| row.ended), Some(false));
    assert_eq!(group(&pods, &first), (true, 2_048_000));
    drop((first, second));
}

#[test]
fn a_program_that_cannot_be_looked_through_takes_turns_by_the_drivers_lock_and_survives_the_manager() {
    let _lock = exclusive();
    let Some(mut pods) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], "") else { return };
    let mut first = pods.tenant(1, "hoarder").without_hook().arguments("1000 8").start();
    first.expect("ready");
    let second = hooked(&pods, 2, "1000 8");
    pods.when_scheduled_without_hook(1, 1.0);
    pods.node.logged(&["takes turns by the driver's lock", "too_many", "ml/pod-1"]);
    let window = pods.node.window(pods.node.let_pass(6000 * MS));
    let share = window.share_of_busy(first.pid());
    assert!((0.2..0.4).contains(&share), "{share}");
    pods.kill_manager();
    for tenant in [&first, &second] {
        let seen = pods.node.row(tenant).kernels_completed;
        pods.node.when_completed(tenant, seen + 100);
    }
    for tenant in [first, second] {
        tenant.finish().expect_success();
    }
}
