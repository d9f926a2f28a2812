//! What processes announce of their channel groups, once and again, and what the manager takes of it.

use crate::support::driver::{Call, Descriptor, context};
use crate::support::group_processes::{process_with_groups, quiet, two, works};
use crate::support::hook::Hook;
use crate::support::{MS, World, until};
use sluice_comm::page::UNLIMITED;
use sluice_pod_manager::channel_groups::ControlFailure;
use std::os::fd::AsFd;

#[test]
fn later_announcement_replaces_the_earlier_one() {
    let world = World::new();
    let (a, _a) = process_with_groups(&world, "be-a", &[1]);
    works(&world, &a);
    let mut b = world.process("be-b");
    b.want();
    world.settle();
    let (first, second) = (Descriptor::new(), Descriptor::new());
    b.token.announce(&[context(2)], &[first.sent.as_fd()]);
    assert!(b.granted() > 1000.0);
    assert_eq!(b.page().deadline_ns(), UNLIMITED);
    works(&world, &b);
    assert_eq!(world.driver.group(2), (false, 2048));
    b.token.announce(&[context(4)], &[second.sent.as_fd()]);
    first.closes();
    quiet(&world);
    assert_eq!(world.driver.group(4), (false, 2048));
    // None: it asks as before.
    b.token.announce(&[], &[]);
    second.closes();
    quiet(&world);
    assert_eq!(b.page().deadline_ns(), 0);
    b.want();
    world.settle();
    world.advance(50 * MS);
    quiet(&world);
    assert_eq!(b.granted(), 50.0);
}

#[test]
fn wakeups_are_requested_again_once_a_process_announces_contexts_again() {
    let world = World::new();
    let (mut a, _a) = process_with_groups(&world, "be-a", &[1]);
    until("it is to ring", || a.page().wakeup_requested());
    a.token.announce(&[], &[]);
    until("it is not to ring", || !a.page().wakeup_requested());
    quiet(&world);
    let descriptor = Descriptor::new();
    a.token.announce(&[context(2)], &[descriptor.sent.as_fd()]);
    quiet(&world);
    world.advance(100 * MS);
    assert_eq!(a.page().deadline_ns(), UNLIMITED);
    assert!(a.page().wakeup_requested());
}

#[test]
fn process_with_a_descriptor_that_is_no_control_descriptor_is_token_scheduled() {
    let world = World::new();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut hook = Hook::attach_with(
        &world.socket(),
        &world.peers.process(),
        "be-a",
        0,
        (&[context(1)], &[file.as_fd()]),
    )
    .unwrap();
    hook.want();
    assert_eq!(hook.granted(), 50.0);
    assert_eq!(world.metric("sluice_control_descriptors_refused_total"), Some(1.0));
    assert_eq!(world.driver.calls(), []);
}

#[test]
fn process_with_one_uncontrollable_context_is_token_scheduled() {
    let world = World::new();
    let (good, bad) = (Descriptor::new(), std::fs::File::open("/dev/null").unwrap());
    let mut other = context(2);
    other.descriptor = 1;
    let hook = Hook::attach_with(
        &world.socket(),
        &world.peers.process(),
        "be-a",
        0,
        (&[context(1), other], &[good.sent.as_fd(), bad.as_fd()]),
    );
    let mut hook = hook.unwrap();
    hook.want();
    assert_eq!(hook.granted(), 50.0);
    good.closes();
}

#[test]
fn contexts_beside_the_memory_channel_or_with_other_descriptors_than_announced_are_refused() {
    let world = World::new();
    let mut hook = world.process("be-a");
    hook.memory.announce(&[], &[]);
    assert!(hook.memory.is_closed());
    let mut hook = world.process("be-a");
    hook.token.announce(&[context(1)], &[]);
    assert!(hook.token.is_closed());
}

#[test]
fn disabled_group_that_is_not_announced_again_is_enabled() {
    let world = World::new();
    let (a, _a) = process_with_groups(&world, "be-a", &[1]);
    works(&world, &a);
    let (mut b, sent) = process_with_groups(&world, "be-b", &[2, 3]);
    works(&world, &b);
    assert_eq!((world.driver.group(2), world.driver.group(3)), ((false, 2048), (false, 2048)));
    b.token.announce(&[context(2)], &[sent.sent.as_fd()]);
    until("the other group runs", || {
        world.settle();
        world.driver.group(3) == (true, 2048)
    });
    quiet(&world);
    assert_eq!(world.driver.group(2), (false, 2048));
    // One context that cannot be controlled: all are let go.
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut other = context(4);
    other.descriptor = 1;
    b.token.announce(&[context(2), other], &[sent.sent.as_fd(), file.as_fd()]);
    until("nothing of it is stopped", || {
        world.settle();
        world.driver.group(2) == (true, 2048)
    });
    sent.closes();
    assert_eq!(b.page().deadline_ns(), 0);
}

#[test]
fn contexts_announced_again_stay_and_only_their_last_descriptor_is_kept() {
    let world = World::new();
    let ((_a, _ad), (mut b, first)) = two(&world);
    let second = Descriptor::new();
    b.token.announce(&[context(2)], &[second.sent.as_fd()]);
    first.closes();
    quiet(&world);
    assert_eq!(world.driver.group(2), (false, 2048));
    assert_eq!(b.page().deadline_ns(), UNLIMITED);
    world.driver.take_calls();
    world.advance(50 * MS);
    quiet(&world);
    assert_eq!(world.driver.take_calls(), [Call::Stop(1), Call::Start(2)]);
    drop(b);
    second.closes_in_time(&world);
}

#[test]
fn client_has_a_maximum_of_groups_however_slowly_it_announces_them() {
    let world = World::new();
    let (a, _sent) = process_with_groups(&world, "be-a", &(1..=40).collect::<Vec<_>>());
    let (b, _other) = process_with_groups(&world, "be-b", &[100]);
    world.advance(60_000 * MS);
    quiet(&world);
    let (mut second, sent) = (world.process("be-a"), Descriptor::new());
    let contexts: Vec<_> = (41..=65).map(context).collect();
    second.token.announce(&contexts, &[sent.sent.as_fd()]);
    until("it is refused", || world.metric("sluice_announcements_refused_total") == Some(1.0));
    quiet(&world);
    assert_eq!(second.page().deadline_ns(), 0, "it is token-scheduled");
    assert_eq!((a.page().deadline_ns(), b.page().deadline_ns()), (UNLIMITED, UNLIMITED));
    sent.closes();
    second.token.announce(&contexts[..24], &[Descriptor::new().sent.as_fd()]);
    until("as many as it may have", || second.page().deadline_ns() == UNLIMITED);
}

#[test]
fn process_that_announces_without_end_is_token_scheduled() {
    let world = World::new();
    let (mut a, sent) = process_with_groups(&world, "be-a", &[1]);
    let refused = || world.metric("sluice_announcements_refused_total");
    for group in 2..65 {
        a.token.announce(&[context(group)], &[sent.sent.as_fd()]);
    }
    quiet(&world);
    assert_eq!((refused(), a.page().deadline_ns()), (Some(0.0), UNLIMITED));
    a.token.announce(&[context(65)], &[sent.sent.as_fd()]);
    until("it is refused", || refused() == Some(1.0));
    quiet(&world);
    assert_eq!(a.page().deadline_ns(), 0);
    assert_eq!(world.driver.group(64), (true, 2048));
    a.want();
    assert_eq!(a.granted(), 50.0);
    // What was refused is tried again when it may be announced, and once only.
    world.advance(99 * MS);
    assert_ne!(a.page().deadline_ns(), UNLIMITED);
    world.advance(MS);
    until("it is hardware-scheduled again", || {
        world.settle();
        a.page().deadline_ns() == UNLIMITED
    });
    assert_eq!(refused(), Some(1.0));
    works(&world, &a);
    let (b, _bd) = process_with_groups(&world, "be-b", &[100]);
    works(&world, &b);
    world.advance(50 * MS);
    quiet(&world);
    assert_eq!(world.driver.group(65), (false, 2048), "it is under control");
}

#[test]
fn postponed_announcement_is_dropped_when_its_process_ends_or_announces_another() {
    let world = World::new();
    let (mut a, _sent) = process_with_groups(&world, "be-a", &(1..=64).collect::<Vec<_>>());
    let refused = || world.metric("sluice_announcements_refused_total");
    let (first, second) = (Descriptor::new(), Descriptor::new());
    a.token.announce(&[context(65)], &[first.sent.as_fd()]);
    until("it is refused", || refused() == Some(1.0));
    a.token.announce(&[context(66)], &[second.sent.as_fd()]);
    first.closes();
    until("it is refused", || refused() == Some(2.0));
    drop(a);
    second.closes();
}

#[test]
fn unchanged_groups_cost_no_controls_when_announced_again() {
    let world = World::new();
    let ((mut a, sent), (_b, _bd)) = two(&world);
    world.driver.take_calls();
    for _ in 0..200 {
        a.token.announce(&[context(1)], &[sent.sent.as_fd()]);
    }
    world.settle();
    until("the last one is taken", || a.token.is_silent());
    quiet(&world);
    assert_eq!(world.driver.take_calls(), []);
    assert_eq!(
        (world.metric("sluice_announcements_refused_total"), a.page().deadline_ns()),
        (Some(0.0), UNLIMITED)
    );
    // One more costs one.
    a.token.announce(&[context(1), context(3)], &[sent.sent.as_fd()]);
    until("it is controlled", || world.driver.calls().contains(&Call::Slice(3, 2048)));
    quiet(&world);
    assert!(world.driver.take_calls().iter().all(|call| call.group() == 3));
    // Other channels are another context.
    let mut other = context(1);
    other.channels.push(0x5c00_0018);
    a.token.announce(&[other, context(3)], &[sent.sent.as_fd()]);
    until("it is controlled anew", || world.driver.calls().contains(&Call::Slice(1, 2048)));
}

#[test]
fn destroyed_context_does_not_close_the_connection() {
    let world = World::new();
    let ((_a, _ad), (mut b, descriptor)) = two(&world);
    world.driver.fail(2, Some(ControlFailure::Gone));
    world.advance(50 * MS);
    descriptor.closes();
    quiet(&world);
    b.want();
    world.settle();
    world.advance(50 * MS);
    quiet(&world);
    assert_eq!(b.granted(), 50.0);
}

#[test]
fn descriptor_without_a_context_and_context_announced_twice_are_refused() {
    let world = World::new();
    let (first, second) = (Descriptor::new(), Descriptor::new());
    let mut on_second = context(1);
    on_second.descriptor = 1;
    let mut hook = world.process("be-a");
    hook.token.announce(&[on_second], &[first.sent.as_fd(), second.sent.as_fd()]);
    assert!(hook.token.is_closed());
    first.closes();
    let mut hook = world.process("be-a");
    hook.token.announce(&[context(1), context(1)], &[second.sent.as_fd()]);
    assert!(hook.token.is_closed());
    second.closes();
}
