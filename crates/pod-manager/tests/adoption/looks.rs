//! Looks around: what they find, what they cost, and what comes of one that fails.

use crate::node::Node;
use crate::support::agent::{Agent, pod, uid};
use crate::support::steered::quiet;
use crate::support::{MS, until};
use sluice_pod_manager::adopt::Why;

#[test]
fn groups_that_come_and_go_are_followed() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _raw = node.scout.program(500, &uid(1), &[1]);
    node.look_until_adopted();
    node.scout.regroup(500, &[1, 11]);
    node.scout.take_reached();
    until("it was looked into", || {
        node.look();
        !node.scout.take_reached().is_empty()
    });
    until("the new one is stopped too", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        !node.group(1).0 && !node.group(11).0
    });
    node.scout.regroup(500, &[11]);
    until("the old one is let go", || {
        node.look();
        node.group(1) == (true, 2048)
    });
}

#[test]
fn a_manager_that_was_started_again_finds_it_again() {
    let mut node = Node::new();
    let _raw = node.scout.program(500, &uid(1), &[1]);
    let (_hook, _descriptor) = node.hooked(2, 2);
    node.look_until_adopted();
    node.world.stop();
    assert_eq!(node.group(1), (true, 2048));
    node.world.scout = Some(node.scout.clone());
    node.world.start();
    node.agent = Agent::connect(&node.world);
    node.agent.set(&[pod(&uid(1)), pod(&uid(2))]);
    node.look_until_adopted();
    assert_eq!(node.adopted(1), 1.0);
}

#[test]
fn a_look_that_fails_changes_nothing() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _raw = node.scout.program(500, &uid(1), &[1]);
    node.scout.unreachable(501, &uid(1), Why::NotPermitted);
    until("they are known", || {
        node.look();
        (node.adopted(1), node.unsteered(1, "not_permitted")) == (1.0, 1.0)
    });
    node.scout.blind(true);
    node.look_until_adopted();
    assert_eq!((node.adopted(1), node.unsteered(1, "not_permitted")), (1.0, 1.0));
    node.scout.blind(false);
    node.look();
    assert_eq!((node.adopted(1), node.unsteered(1, "not_permitted")), (1.0, 1.0));
}

#[test]
fn what_is_found_by_searching_on_is_adopted_without_waiting_for_the_next_time() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    node.scout.unreachable(500, &uid(1), Why::NoGroups);
    // By then it is looked into every 8 s only.
    (0..20).for_each(|_| node.look());
    node.scout.take_reached();
    until("it was looked into a moment ago", || {
        node.look();
        !node.scout.take_reached().is_empty()
    });
    assert_eq!(node.unsteered(1, "no_groups"), 1.0);
    let _descriptor = node.scout.find(500, &[1]);
    node.look();
    assert_eq!((node.adopted(1), node.unsteered(1, "no_groups")), (1.0, 0.0));
}

#[test]
fn a_pod_whose_programs_take_long_to_look_into_does_not_hide_those_of_others_nor_its_own_for_ever() {
    let node = Node::with(&[pod(&uid(1)), pod(&uid(2)), pod(&uid(3))]);
    let (_hook, _descriptor) = node.hooked(2, 2);
    for pid in 500..520 {
        node.scout.unreachable(pid, &uid(1), Why::NoGroups);
        node.scout.costs(pid, 1 << 18);
    }
    let _own = node.scout.program(530, &uid(1), &[1]);
    let _others = node.scout.program(600, &uid(3), &[3]);
    node.look_until_adopted();
    assert_eq!((node.adopted(3), node.adopted(1)), (1.0, 0.0));
    let looks = node.scout.looks();
    until("its own is adopted", || {
        node.look();
        node.adopted(1) == 1.0
    });
    assert!(node.scout.looks() - looks < 80, "{} looks", node.scout.looks() - looks);
}
