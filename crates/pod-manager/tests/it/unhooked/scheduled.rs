//! Scheduling of unhooked processes that a scan has found.

use super::harness::{Harness, S, failure};
use crate::support::agent::{pod, uid};
use crate::support::group_processes::quiet;
use crate::support::{MS, until};
use sluice_pod_manager::unhooked::scanning::ObstacleKind;
use sluice_proto::control::{Class, Client};

#[test]
fn unhooked_and_hooked_process_share_the_gpu_by_their_quotas() {
    let clients =
        [Client { quota_ppm: 300_000, ..pod(&uid(1)) }, Client { quota_ppm: 700_000, ..pod(&uid(2)) }];
    let mut node = Harness::with(&clients);
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _raw = node.discovery.add_process(500, &uid(1), &[1]);
    node.scan_until_scheduled();
    assert_eq!(node.unhooked(1), 1.0);
    let [raw, hooked] = node.enabled_ms([1, 2]);
    let share = f64::from(raw) / f64::from(raw + hooked);
    assert!((share - 0.3).abs() < 0.02, "{raw} ms and {hooked} ms");
    let usage = node.agent.usage(&uid(1)).unwrap();
    assert_eq!((usage.adopted_processes, usage.processes.len(), usage.processes[0].pid), (1, 1, 500));
    assert!(usage.gpu_time_ns > 2 * S);
}

/// Milliseconds until a process of pod 1 is scheduled from outside.
fn scheduled_after(node: &Harness) -> u64 {
    let begun = node.world.clock.now();
    until("the process is scheduled from outside", || {
        node.world.clock.advance(10 * MS);
        quiet(&node.world);
        node.unhooked(1) == 1.0
    });
    (node.world.clock.now() - begun) / MS
}

#[test]
fn process_without_a_hook_is_scheduled_within_a_second_and_one_with_a_mapped_hook_may_attach() {
    let node = Harness::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _raw = node.discovery.add_process(500, &uid(1), &[1]);
    let after = scheduled_after(&node);
    assert!(after <= 800, "{after} ms");
    node.discovery.end_process(500);
    until("the process is gone", || {
        quiet(&node.world);
        node.unhooked(1) == 0.0
    });
    node.discovery.map_hook(501);
    let _raw = node.discovery.add_process(501, &uid(1), &[11]);
    let after = scheduled_after(&node);
    assert!((2000..=3000).contains(&after), "{after} ms");
}

#[test]
fn latency_critical_process_is_protected_from_unhooked_ones() {
    let critical = Client { class: Class::LatencyCritical.into(), ..pod(&uid(3)) };
    let node = Harness::with(&[pod(&uid(1)), pod(&uid(2)), critical]);
    let (_first, _second) =
        (node.discovery.add_process(500, &uid(1), &[1]), node.discovery.add_process(501, &uid(2), &[2]));
    node.scan_until_scheduled();
    let (lc, _descriptor) = node.hooked(3, 3);
    lc.becomes(false, node.world.clock.now());
    quiet(&node.world);
    assert_eq!(node.group(3), (true, 1_000_000));
    let slices = [node.group(1).1, node.group(2).1];
    assert_eq!(slices, [1, 1]);
    assert_ne!(node.group(1).0, node.group(2).0, "one of them is enabled at a time");
}

#[test]
fn descriptors_of_an_ended_process_are_closed_and_the_others_continue() {
    let node = Harness::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let raw = node.discovery.add_process(500, &uid(1), &[1]);
    node.scan_until_scheduled();
    assert_eq!(node.unhooked(1), 1.0);
    node.discovery.end_process(500);
    raw.closes();
    quiet(&node.world);
    assert_eq!(node.unhooked(1), 0.0);
    let [_, hooked] = node.enabled_ms([1, 2]);
    assert_eq!(hooked, 10_000);
}

#[test]
fn process_of_a_pod_that_is_removed_as_client_is_released() {
    let mut node = Harness::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let raw = node.discovery.add_process(500, &uid(1), &[1]);
    node.scan_until_scheduled();
    until("its group is disabled", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        !node.group(1).0
    });
    node.agent.set(&[pod(&uid(2))]);
    quiet(&node.world);
    assert_eq!(node.group(1), (true, 2048));
    node.discovery.set_uncontrollable(500, ObstacleKind::NoGroups);
    raw.closes();
}

#[test]
fn child_with_its_parents_file_is_not_counted_as_a_second_process() {
    let node = Harness::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _parent = node.discovery.add_process(500, &uid(1), &[1]);
    let _child = node.discovery.add_process(501, &uid(1), &[1]);
    node.scan_until_scheduled();
    assert_eq!(node.unhooked(1), 1.0);
    // The process recorded as owner ends. The other one lives, and its next inspection finds the group.
    node.discovery.end_process(500);
    until("the other process is scheduled", || {
        node.scan();
        node.unhooked(1) == 1.0
    });
    let enabled = node.enabled_ms([1, 2]);
    assert!(enabled.iter().all(|ms| (4500..=5500).contains(ms)), "{enabled:?}");
}

#[test]
fn uncontrolled_processes_are_counted_by_reason() {
    let mut node = Harness::with(&[pod(&uid(1)), pod(&uid(2)), pod(&uid(3))]);
    node.discovery.add_uncontrollable(500, &uid(1), ObstacleKind::NotPermitted);
    let _raw = node.discovery.add_process(501, &uid(2), &[2]);
    let _many = node.discovery.add_process(502, &uid(3), &(100..200).collect::<Vec<_>>());
    node.world.driver.fail(2, Some(failure()));
    let expected = [(1, "not_permitted"), (2, "control_failed"), (3, "too_many")];
    until("all processes are counted", || {
        node.scan();
        expected.iter().all(|(n, why)| node.uncontrolled(*n, why) == 1.0)
    });
    assert_eq!([1, 2, 3].map(|n| node.unhooked(n)), [0.0; 3]);
    assert_eq!(node.agent.usage(&uid(1)).unwrap().unsteered_processes["not_permitted"], 1);
    node.discovery.end_process(500);
    node.scan();
    assert_eq!(node.uncontrolled(1, "not_permitted"), 0.0);
}

/// Otherwise a pod could end its quanta by one process that cannot be controlled.
#[test]
fn process_that_cannot_be_controlled_does_not_end_the_scheduling_of_its_pod() {
    let node = Harness::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _bad = node.discovery.add_process(500, &uid(1), &[1]);
    let _good = node.discovery.add_process(501, &uid(1), &[11]);
    node.world.driver.fail(1, Some(failure()));
    until("one process is scheduled, the other one is not", || {
        node.scan();
        (node.unhooked(1), node.uncontrolled(1, "control_failed")) == (1.0, 1.0)
    });
    let enabled = node.enabled_ms([11, 2]);
    assert!(enabled.iter().all(|ms| (4500..=5500).contains(ms)), "{enabled:?}");
    node.scan_until_scheduled();
    assert_eq!((node.unhooked(1), node.uncontrolled(1, "control_failed")), (1.0, 1.0));
}
