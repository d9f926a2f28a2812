//! What processes with the hook announce, beside programs without it: whose a group is.

use crate::node::{Node, failure};
use crate::support::agent::uid;
use crate::support::driver::{Call, context};
use crate::support::hook::Hook;
use crate::support::steered::quiet;
use crate::support::{MS, until};
use sluice_comm::page::STANDING;
use sluice_pod_manager::adopt::Why;
use std::os::fd::AsFd;

#[test]
fn whoever_has_attached_is_never_looked_into_and_who_attaches_later_loses_no_control() {
    let node = Node::new();
    let (hook, descriptor) = node.hooked(1, 1);
    let _same = node.scout.program(hook.process.pid, &uid(1), &[1]);
    let _raw = node.scout.program(500, &uid(2), &[2]);
    node.look_until_adopted();
    assert!(node.scout.take_reached().iter().all(|pid| *pid == 500));
    // The second one attaches after all, with the group that is controlled already, while it is stopped.
    until("it is stopped", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        !node.group(2).0
    });
    node.world.driver.take_calls();
    let mut process = node.world.peers.process_of(&uid(2));
    process.pid = 500;
    let contexts = [context(2)];
    let announced: (&[_], &[_]) = (&contexts, &[descriptor.sent.as_fd()]);
    let late = Hook::attach_with(&node.world.socket(), &process, "whoever", 0, announced).unwrap();
    late.becomes(true, node.world.clock.now());
    quiet(&node.world);
    assert!(!node.world.driver.calls().contains(&Call::Start(2)), "{:?}", node.world.driver.calls());
    assert_eq!(late.page().deadline_ns(), STANDING);
    assert_eq!(node.adopted(2), 0.0);
    let turns = node.enabled_ms([1, 2]);
    assert!(turns.iter().all(|ms| (4500..=5500).contains(ms)), "{turns:?}");
    assert_eq!(node.scout.take_reached(), [] as [i32; 0]);
}

/// Nor by one that has the hook and of which a control fails.
#[test]
fn a_program_is_taken_again_at_once_when_a_hooked_one_of_its_pod_cannot_be_controlled() {
    let node = Node::new();
    let (bad, _bad) = node.hooked(1, 1);
    let (_other, _descriptor) = node.hooked(2, 2);
    let _raw = node.scout.program(500, &uid(1), &[11]);
    // By then it is looked into every 8 s only.
    (0..10).for_each(|_| node.look());
    assert_eq!(node.adopted(1), 1.0);
    node.world.driver.fail(1, Some(failure()));
    until("a control has failed", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        bad.page().deadline_ns() != STANDING
    });
    node.world.driver.fail(1, None);
    node.look();
    assert_eq!(node.adopted(1), 1.0);
    let (next, _next) = node.hooked(1, 3);
    assert_ne!(next.page().deadline_ns(), STANDING, "who has the hook is not pardoned for that");
    let turns = node.enabled_ms([11, 2]);
    assert!(turns[0] < 6000 && turns[1] > 4000, "{turns:?}");
}

/// The announcement is put off, and the groups are found at the child meanwhile.
#[test]
fn what_a_hooked_parent_announces_later_is_taken_from_the_child_that_has_inherited_it() {
    let node = Node::new();
    let (mut hook, descriptor) = node.hooked(1, 1);
    let mut announce = |groups: std::ops::Range<u32>| {
        let contexts: Vec<_> = groups.map(context).collect();
        hook.token.announce(&contexts, &[descriptor.sent.as_fd()]);
        quiet(&node.world);
    };
    announce(100..160);
    announce(200..250);
    let _child = node.scout.program(500, &uid(1), &[200]);
    until("the child is adopted", || {
        node.world.advance(100 * MS);
        quiet(&node.world);
        node.adopted(1) == 1.0
    });
    assert_ne!(hook.page().deadline_ns(), STANDING, "it is put off");
    until("the parent is steered", || {
        node.world.advance(100 * MS);
        quiet(&node.world);
        hook.page().deadline_ns() == STANDING
    });
    assert_eq!(node.adopted(1), 0.0);
}

/// It has been told the handles, or sends a file of its own for them.
#[test]
fn what_a_hooked_process_announces_that_is_not_its_own_frees_nobody() {
    let node = Node::new();
    let (_other, _descriptor) = node.hooked(2, 2);
    let _raw = node.scout.program(500, &uid(1), &[1]);
    node.look_until_adopted();
    assert_eq!(node.adopted(1), 1.0);
    let refused = || node.world.metric("sluice_announcements_refused_total").unwrap();
    for (before, doubt) in [(0.0, Ok(false)), (1.0, Err(Why::NotPermitted)), (2.0, Err(Why::Driver))] {
        let liar = node.world.peers.process_of(&uid(1));
        node.scout.doubt(liar.pid, doubt);
        assert_eq!(refused(), before);
        let (liar, _sent) = node.announcer(liar, 1);
        assert_eq!((refused(), node.adopted(1)), (before + 1.0, 1.0), "{doubt:?}");
        assert_ne!(liar.page().deadline_ns(), STANDING);
        drop(liar);
        quiet(&node.world);
        assert_eq!(node.adopted(1), 1.0);
    }
    let turns = node.enabled_ms([1, 2]);
    assert!(turns.iter().all(|ms| (4500..=5500).contains(ms)), "{turns:?}");
    // What is nobody's is believed of who cannot be looked into.
    let hidden = node.world.peers.process_of(&uid(1));
    node.scout.doubt(hidden.pid, Err(Why::NotPermitted));
    let (hidden, _sent) = node.announcer(hidden, 11);
    assert_eq!((refused(), hidden.page().deadline_ns()), (3.0, STANDING));
}
