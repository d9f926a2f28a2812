//! Programs of bed that run without the hook and are scheduled by the pod-manager, measured by the simulated GPU's ledger.

use sluice_preload_tests::machine_lock::{exclusive, shared};
use sluice_preload_tests::pod_bed::PodBed;
use sluice_preload_tests::{MS, Tenant, eventually};
use sluice_proto::control::Class::{BestEffort, LatencyCritical};

/// 0.1 s of submitted work, so that a busy machine does not leave the GPU idle.
const DEEP: &str = "2000 50";

/// A busy program of a pod without the hook; it runs kernels when this returns.
fn unhooked(bed: &PodBed, n: usize) -> Tenant {
    let mut tenant = bed.tenant(n, "busy").without_hook().arguments(DEEP).start();
    tenant.expect("ready");
    bed.node.when_completed(&tenant, 16);
    tenant
}

/// The same with it.
fn hooked(bed: &PodBed, n: usize, arguments: &str) -> Tenant {
    let mut tenant = bed.tenant(n, "busy").arguments(arguments).start();
    tenant.expect("ready");
    bed.node.when_completed(&tenant, 16);
    tenant
}

/// Whether a process's contexts may run, and their time slice.
fn group(bed: &PodBed, tenant: &Tenant) -> (bool, u64) {
    let ledger = bed.node.ledger();
    let found = ledger.groups.iter().find(|group| group.pid == tenant.pid());
    found.map(|group| (group.is_enabled, group.timeslice_ns)).unwrap_or_else(|| panic!("it has no context"))
}

#[test]
fn a_program_without_the_hook_gets_its_pods_share() {
    // Quanta follow the real clock.
    let _lock = exclusive();
    let Some(bed) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], "") else { return };
    let (first, second) = (unhooked(&bed, 1), hooked(&bed, 2, DEEP));
    bed.when_scheduled_without_hook(1, 1.0);
    // The manager has checked and accepted the other program's announcement.
    eventually("both to be hardware-scheduled", || {
        (bed.figure("sluice_level", &["level=\"turn\""]) == 2.0).then_some(())
    });
    assert_eq!(bed.figure("sluice_announcements_refused_total", &[]), 0.0);
    let measured = bed.node.undisturbed(6000 * MS);
    let share = bed.node.window(measured.span).share_of_busy(first.pid());
    assert!((0.27 - measured.taken..0.33 + measured.taken).contains(&share), "{share}");
    assert!(bed.metric("sluice_gpu_seconds_total", 1, &[]) > 1.0);
    for tenant in [first, second] {
        tenant.finish().expect_success();
    }
}

#[test]
fn without_discovery_a_program_without_the_hook_exceeds_its_share() {
    let _lock = shared();
    let clients = [(1, BestEffort, 30), (2, BestEffort, 70)];
    let Some(bed) = PodBed::start(&clients, "--adopt=off") else { return };
    let (first, _second) = (unhooked(&bed, 1), hooked(&bed, 2, DEEP));
    let window = bed.node.window(bed.node.let_pass(6000 * MS));
    assert!(window.share_of_busy(first.pid()) > 0.4);
    assert_eq!(bed.metric("sluice_adopted_processes", 1, &[]), 0.0);
}

#[test]
fn beside_a_latency_critical_process_it_has_the_shortest_slice() {
    let _lock = shared();
    let Some(bed) = PodBed::start(&[(1, BestEffort, 30), (3, LatencyCritical, 20)], "") else { return };
    let first = unhooked(&bed, 1);
    bed.when_scheduled_without_hook(1, 1.0);
    assert_eq!(group(&bed, &first), (true, 2_048_000));
    let critical = hooked(&bed, 3, "100 1");
    eventually("its slice to be short", || (group(&bed, &first).1 == 1_000).then_some(()));
    critical.finish().expect_success();
    eventually("its slice to be the driver's", || (group(&bed, &first) == (true, 2_048_000)).then_some(()));
    first.finish().expect_success();
}

#[test]
fn killed_while_stopped_it_leaves_no_memory() {
    let _lock = shared();
    let Some(bed) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], "") else { return };
    let first = unhooked(&bed, 1);
    let second = hooked(&bed, 2, "1000 8");
    bed.when_scheduled_without_hook(1, 1.0);
    eventually("it to stop", || (!group(&bed, &first).0).then_some(()));
    drop(first);
    second.finish().expect_success();
    bed.node.when("all memory to be free", |ledger| (ledger.gpu.memory_used == 0).then_some(()));
    bed.when_scheduled_without_hook(1, 0.0);
}

#[test]
fn after_a_killed_manager_the_next_one_schedules_it_again() {
    let _lock = shared();
    let Some(mut bed) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], "") else { return };
    let (first, second) = (unhooked(&bed, 1), hooked(&bed, 2, "1000 8"));
    bed.when_scheduled_without_hook(1, 1.0);
    eventually("it to stop", || {
        if group(&bed, &first).0 {
            return None;
        }
        bed.kill_manager();
        let is_stopped = !group(&bed, &first).0;
        if !is_stopped {
            bed.start_manager();
            bed.when_scheduled_without_hook(1, 1.0);
        }
        is_stopped.then_some(())
    });
    bed.start_manager();
    bed.when_scheduled_without_hook(1, 1.0);
    for tenant in [&first, &second] {
        let seen = bed.node.row(tenant).kernels_completed;
        bed.node.when_completed(tenant, seen + 100);
    }
    for tenant in [first, second] {
        tenant.finish().expect_success();
    }
}

#[test]
fn groups_of_other_gpus_and_programs_of_unknown_pods_are_not_scheduled() {
    let _lock = shared();
    let other = "--gpu-uuid GPU-fedcba98-89ab-cdef-0123-456789abcdef";
    let Some(bed) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], other) else { return };
    let first = unhooked(&bed, 1);
    bed.node.let_pass(6000 * MS);
    assert_eq!(bed.metric("sluice_adopted_processes", 1, &[]), 0.0);
    assert_eq!(bed.metric("sluice_unsteered_processes", 1, &[]), 0.0);
    assert_eq!(group(&bed, &first), (true, 2_048_000));
    drop((first, bed));
    let Some(bed) = PodBed::start(&[(2, BestEffort, 70)], "") else { return };
    let (first, second) = (unhooked(&bed, 1), unhooked(&bed, 2));
    bed.when_scheduled_without_hook(2, 1.0);
    let ledger = bed.node.ledger();
    assert_eq!(ledger.by_pid(first.pid()).map(|row| row.ended), Some(false));
    assert_eq!(group(&bed, &first), (true, 2_048_000));
    drop((first, second));
}

/// An announcement takes 64 contexts. The hook reports that it has announced none, so the manager finds what there is; the test bed fails
/// if it counts that as a violation.
#[test]
fn a_program_with_more_contexts_than_an_announcement_takes_is_scheduled_from_outside() {
    let _lock = shared();
    let Some(bed) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], "") else { return };
    let mut first = bed.tenant(1, "contexts").start();
    first.expect("ready");
    for _ in 0..64 {
        first.send("more");
        first.expect("made");
    }
    first.send("go");
    first.expect("going");
    let second = hooked(&bed, 2, DEEP);
    bed.when_scheduled_without_hook(1, 1.0);
    let window = bed.node.window(bed.node.let_pass(3000 * MS));
    let share = window.share_of_busy(first.pid());
    // More than its share is what the manager prevents. It may have less, if the machine does not run it in time.
    assert!((0.05..0.4).contains(&share), "{share}");
    for _ in 0..2 {
        first.send("less");
        first.expect("destroyed");
    }
    // All groups are announced now, so its page counts again.
    bed.when_scheduled_without_hook(1, 0.0);
    second.finish().expect_success();
}

#[test]
fn a_program_without_discoverable_groups_is_scheduled_by_the_drivers_lock_and_survives_the_manager() {
    let _lock = shared();
    let Some(mut bed) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], "") else { return };
    let mut first = bed.tenant(1, "hoarder").without_hook().arguments("1000 8").start();
    first.expect("ready");
    let second = hooked(&bed, 2, DEEP);
    bed.when_scheduled_without_hook(1, 1.0);
    bed.node.logged(&["is scheduled by the driver's lock", "too_many", "ml/pod-1"]);
    bed.node.expect_violation("too_many_descriptors");
    let window = bed.node.window(bed.node.let_pass(6000 * MS));
    let share = window.share_of_busy(first.pid());
    // More than its share is what the manager prevents. It may have less, if the machine does not run it in time.
    assert!((0.05..0.4).contains(&share), "{share}");
    bed.kill_manager();
    for tenant in [&first, &second] {
        let seen = bed.node.row(tenant).kernels_completed;
        bed.node.when_completed(tenant, seen + 100);
    }
    for tenant in [first, second] {
        tenant.finish().expect_success();
    }
}
