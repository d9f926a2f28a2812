//! Announcements of hooked processes beside unhooked processes: which process owns a group.

use super::harness::{Harness, S, failure};
use crate::support::agent::uid;
use crate::support::driver::{Call, Descriptor, context};
use crate::support::group_processes::quiet;
use crate::support::hook::Hook;
use crate::support::peers::FakeProcess;
use crate::support::{MS, until};
use sluice_comm::page::UNLIMITED;
use sluice_pod_manager::unhooked::scanning::ObstacleKind;
use std::os::fd::AsFd;

#[test]
fn process_that_attaches_later_keeps_its_groups() {
    let node = Harness::new();
    let (hook, descriptor) = node.hooked(1, 1);
    let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1]);
    let _raw = node.discovery.add_process(500, &uid(2), &[2]);
    node.scan_until_scheduled();
    // The second process attaches with the group that is controlled already, while the group is disabled.
    until("the group is disabled", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        !node.group(2).0
    });
    node.world.driver.take_calls();
    let mut process = node.world.peers.process_of(&uid(2));
    process.pid = 500;
    let contexts = [context(2)];
    let announced: (&[_], &[_]) = (&contexts, &[descriptor.sent.as_fd()]);
    let late = Hook::attach_with(&node.world.socket(), &process, "unknown", 0, announced).unwrap();
    late.becomes(true, node.world.clock.now());
    quiet(&node.world);
    assert!(!node.world.driver.calls().contains(&Call::Start(2)), "{:?}", node.world.driver.calls());
    assert_eq!(late.page().deadline_ns(), UNLIMITED);
    assert_eq!(node.unhooked(2), 0.0);
    let enabled = node.enabled_ms([1, 2]);
    assert!(enabled.iter().all(|ms| (4500..=5500).contains(ms)), "{enabled:?}");
}

/// Otherwise a pod could end its quanta by one hooked process that cannot be controlled.
#[test]
fn failed_control_of_a_hooked_process_does_not_end_the_quanta_of_its_pods_other_processes() {
    let node = Harness::new();
    let (bad, _bad) = node.hooked(1, 1);
    let (_other, _descriptor) = node.hooked(2, 2);
    let _raw = node.discovery.add_process(500, &uid(1), &[11]);
    (0..10).for_each(|_| node.scan());
    assert_eq!(node.unhooked(1), 1.0);
    node.world.driver.fail(1, Some(failure()));
    until("a control has failed", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        bad.page().deadline_ns() != UNLIMITED
    });
    assert_eq!(node.unhooked(1), 1.0);
    let enabled = node.enabled_ms([11, 2]);
    assert!(enabled.iter().all(|ms| (4000..=6000).contains(ms)), "{enabled:?}");
}

/// The parent's announcement is delayed, and the scan finds the groups at the child before.
#[test]
fn hooked_parent_receives_its_groups_from_the_child_that_inherited_the_file() {
    let node = Harness::new();
    let (mut hook, descriptor) = node.hooked(1, 1);
    let mut announce = |groups: std::ops::Range<u32>| {
        let contexts: Vec<_> = groups.map(context).collect();
        hook.token.announce(&contexts, &[descriptor.sent.as_fd()]);
        quiet(&node.world);
    };
    announce(100..160);
    announce(200..250);
    let _child = node.discovery.add_process(500, &uid(1), &[200]);
    until("the child's group is scheduled", || {
        node.world.advance(100 * MS);
        quiet(&node.world);
        node.unhooked(1) == 1.0
    });
    assert_ne!(hook.page().deadline_ns(), UNLIMITED, "the announcement is delayed");
    until("the parent is hardware-scheduled", || {
        node.world.advance(100 * MS);
        quiet(&node.world);
        hook.page().deadline_ns() == UNLIMITED
    });
    assert_eq!(node.unhooked(1), 0.0);
}

/// The process knows the handles of another one, or sends a file of its own with them.
#[test]
fn announcement_of_groups_that_the_process_does_not_own_is_refused() {
    let node = Harness::new();
    let (_other, _descriptor) = node.hooked(2, 2);
    let _raw = node.discovery.add_process(500, &uid(1), &[1]);
    node.scan_until_scheduled();
    assert_eq!(node.unhooked(1), 1.0);
    let refused = || node.world.metric("sluice_announcements_refused_total").unwrap();
    for (before, owns) in
        [(0.0, Ok(false)), (1.0, Err(ObstacleKind::NotPermitted)), (2.0, Err(ObstacleKind::Driver))]
    {
        let other = node.world.peers.process_of(&uid(1));
        node.discovery.set_ownership(other.pid, owns);
        assert_eq!(refused(), before);
        let (other, _sent) = node.announce(other, 1);
        assert_eq!((refused(), node.unhooked(1)), (before + 1.0, 1.0), "{owns:?}");
        assert_ne!(other.page().deadline_ns(), UNLIMITED);
        drop(other);
        quiet(&node.world);
        assert_eq!(node.unhooked(1), 1.0);
    }
    let enabled = node.enabled_ms([1, 2]);
    assert!(enabled.iter().all(|ms| (4500..=5500).contains(ms)), "{enabled:?}");
    // If the check is not permitted, groups that no unhooked process has are accepted.
    let unchecked = node.world.peers.process_of(&uid(1));
    node.discovery.set_ownership(unchecked.pid, Err(ObstacleKind::NotPermitted));
    let (unchecked, _sent) = node.announce(unchecked, 11);
    assert_eq!((refused(), unchecked.page().deadline_ns()), (3.0, UNLIMITED));
}

/// Each attachment would otherwise give it the time in which a hook announces its groups.
#[test]
fn process_that_attaches_and_detaches_again_and_again_stays_within_its_quanta() {
    for (attached_ms, detached_ms) in [(300, 440), (10, 240), (10, 10), (260, 240), (240, 250)] {
        let node = Harness::new();
        let (_other, _descriptor) = node.hooked(2, 2);
        let mut process = node.world.peers.process_of(&uid(1));
        process.pid = 500;
        node.discovery.map_hook(500);
        let _raw = node.discovery.add_process(500, &uid(1), &[1]);
        let mut disabled = 0;
        let pass = |disabled: &mut u64, ms: u64| {
            for _ in 0..ms / 10 {
                node.world.advance(10 * MS);
                quiet(&node.world);
                *disabled += u64::from(!node.group(1).0) * 10;
            }
        };
        pass(&mut disabled, 4000);
        let (mut passed, before) = (0, disabled);
        while passed < 6000 {
            let hook = Hook::attach_with(&node.world.socket(), &process, "unknown", 0, (&[], &[])).unwrap();
            pass(&mut disabled, attached_ms);
            drop(hook);
            quiet(&node.world);
            pass(&mut disabled, detached_ms);
            passed += attached_ms + detached_ms;
        }
        let disabled = disabled - before;
        assert!(
            disabled >= passed / 3,
            "{attached_ms} and {detached_ms}: disabled for {disabled} of {passed} ms"
        );
    }
}

/// The check of a process with very many descriptors is expensive.
#[test]
fn announcement_waits_while_the_checks_of_its_pod_cost_too_much_and_those_of_other_pods_do_not() {
    let node = Harness::new();
    let attach = |process: &FakeProcess, group: u32| {
        let descriptor = Descriptor::new();
        let announced: (&[_], &[_]) = (&[context(group)], &[descriptor.sent.as_fd()]);
        Hook::attach_with(&node.world.socket(), process, "unknown", 0, announced).unwrap()
    };
    let flood = node.world.peers.process_of(&uid(1));
    node.discovery.set_check_queries(flood.pid, 1 << 16);
    let (_flood, _descriptor) = node.announce(flood, 1);
    let late = attach(&node.world.peers.process_of(&uid(1)), 11);
    node.pass(1000);
    assert_ne!(late.page().deadline_ns(), UNLIMITED, "it is scheduled by token meanwhile");
    let other = attach(&node.world.peers.process_of(&uid(2)), 2);
    until("the other pod's process is checked", || {
        quiet(&node.world);
        other.page().deadline_ns() == UNLIMITED
    });
    assert_ne!(late.page().deadline_ns(), UNLIMITED);
    let begun = node.world.clock.now();
    until("the pod has queries again", || {
        node.pass(100);
        late.page().deadline_ns() == UNLIMITED
    });
    assert!(node.world.clock.now() - begun <= 3 * S);
    assert_eq!(node.world.metric("sluice_announcements_refused_total"), Some(0.0));
}
