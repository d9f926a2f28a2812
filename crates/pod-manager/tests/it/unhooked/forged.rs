//! Forged announcements: what a process announces does not let its groups be controlled. It is scheduled from outside within a second.

use super::harness::Harness;
use crate::support::agent::uid;
use crate::support::driver::context;
use crate::support::until;
use sluice_comm::attach::ContextHandles;
use std::os::fd::AsFd;

fn without_channels(group: u32) -> ContextHandles {
    ContextHandles { channels: Vec::new(), ..context(group) }
}

/// A process of pod 1 with group 1 that announces these groups, beside a busy process of pod 2 with group 2. Expects it to be found within a
/// second, and to get half of the GPU.
fn expect_half_of_the_gpu(contexts: &[ContextHandles]) {
    let node = Harness::new();
    let (_other, _its) = node.hooked(2, 2);
    let process = node.world.peers.process_of(&uid(1));
    let _same = node.discovery.add_process(process.pid, &uid(1), &[1]);
    let (_hook, _sent) = node.announce_all(&process, contexts);
    expect_found_within_a_second(&node);
    let enabled = node.enabled_ms([1, 2]);
    assert!(enabled.iter().all(|ms| (4000..=6000).contains(ms)), "{enabled:?}");
    node.pass(3000);
    assert_eq!(node.unhooked(1), 1.0, "its announcement has not become true");
    assert_eq!(node.violations(2, "unannounced_groups"), 0.0);
}

/// The process of pod 1 is scheduled from outside, and its violation is counted.
fn expect_found_within_a_second(node: &Harness) {
    node.pass(1000);
    assert_eq!((node.violations(1, "unannounced_groups"), node.unhooked(1)), (1.0, 1.0));
}

#[test]
fn group_announced_without_its_channels_shares_the_quanta() {
    expect_half_of_the_gpu(&[without_channels(1)]);
}

#[test]
fn process_that_announces_a_group_that_it_does_not_have_shares_the_quanta() {
    expect_half_of_the_gpu(&[context(77)]);
}

#[test]
fn group_announced_with_another_subdevice_shares_the_quanta() {
    expect_half_of_the_gpu(&[ContextHandles { subdevice: 0x5c00_0099, ..context(1) }]);
}

#[test]
fn group_whose_channels_are_withdrawn_long_after_attaching_is_found_within_a_second() {
    let node = Harness::new();
    let (mut hook, descriptor) = node.hooked(1, 1);
    let (_other, _its) = node.hooked(2, 2);
    let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1]);
    node.pass(20_000);
    assert_eq!(node.violations(1, "unannounced_groups"), 0.0);
    hook.token.announce(&[without_channels(1)], &[descriptor.sent.as_fd()]);
    node.wait_for_ownership_checks();
    expect_found_within_a_second(&node);
}

/// A client may have 64 groups. What exceeds them is never admitted.
#[test]
fn process_whose_announcement_is_never_admitted_is_scheduled_from_outside() {
    let node = Harness::new();
    let (_other, _its) = node.hooked(2, 2);
    let many = |groups: std::ops::Range<u32>| groups.map(context).collect::<Vec<_>>();
    let (_first, _descriptor) = node.announce_all(&node.world.peers.process_of(&uid(1)), &many(100..140));
    let process = node.world.peers.process_of(&uid(1));
    let _same = node.discovery.add_process(process.pid, &uid(1), &[1]);
    let (_hook, _sent) = node.announce_all(&process, &[vec![context(1)], many(200..230)].concat());
    expect_found_within_a_second(&node);
}

/// An honest process may create contexts faster than they are admitted, so that is no violation.
#[test]
fn process_whose_announcement_waits_is_scheduled_from_outside_without_a_violation() {
    let node = Harness::new();
    let (_other, _its) = node.hooked(2, 2);
    let (mut hook, descriptor) = node.hooked(1, 1);
    let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1]);
    node.pass(5000);
    for round in 1..=10 {
        let contexts: Vec<_> = (1000 * round..1000 * round + 50).map(context).collect();
        hook.token.announce(&contexts, &[descriptor.sent.as_fd()]);
        node.pass(100);
    }
    assert_eq!((node.violations(1, "unannounced_groups"), node.unhooked(1)), (0.0, 1.0));
    hook.token.announce(&[context(1)], &[descriptor.sent.as_fd()]);
    until("its announcement counts", || {
        node.pass(100);
        node.unhooked(1) == 0.0
    });
    assert_eq!(node.violations(1, "unannounced_groups"), 0.0);
}

/// The other process has closed the file, so that nothing is found of it.
#[test]
fn group_that_another_process_of_the_pod_announces_without_channels_is_its_owners() {
    let node = Harness::new();
    let (_other, _its) = node.hooked(2, 2);
    let (_sibling, _sent) = node.announce_all(&node.world.peers.process_of(&uid(1)), &[without_channels(1)]);
    let process = node.world.peers.process_of(&uid(1));
    let _same = node.discovery.add_process(process.pid, &uid(1), &[1]);
    let (_hook, _its) = node.announce_all(&process, &[]);
    expect_found_within_a_second(&node);
}
