//! What becomes of programs that were adopted.

use crate::node::{Node, S, failure};
use crate::support::agent::{pod, uid};
use crate::support::steered::quiet;
use crate::support::{MS, until};
use sluice_pod_manager::adopt::Why;
use sluice_proto::control::{Class, Client};

#[test]
fn a_program_without_the_hook_takes_turns_with_one_that_has_it_by_their_quotas() {
    let clients =
        [Client { quota_ppm: 300_000, ..pod(&uid(1)) }, Client { quota_ppm: 700_000, ..pod(&uid(2)) }];
    let mut node = Node::with(&clients);
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _raw = node.scout.program(500, &uid(1), &[1]);
    node.look();
    assert_eq!((node.adopted(1), node.group(1)), (0.0, (true, 2048)), "it may attach yet");
    node.look_until_adopted();
    assert_eq!(node.adopted(1), 1.0);
    let [raw, hooked] = node.enabled_ms([1, 2]);
    let share = f64::from(raw) / f64::from(raw + hooked);
    assert!((share - 0.3).abs() < 0.02, "{raw} ms and {hooked} ms");
    let usage = node.agent.usage(&uid(1)).unwrap();
    assert_eq!((usage.adopted_processes, usage.processes.len(), usage.processes[0].pid), (1, 1, 500));
    assert!(usage.gpu_time_ns > 2 * S);
}

#[test]
fn somebody_latency_critical_is_guarded_from_it() {
    let critical = Client { class: Class::LatencyCritical.into(), ..pod(&uid(3)) };
    let node = Node::with(&[pod(&uid(1)), pod(&uid(2)), critical]);
    let (_first, _second) = (node.scout.program(500, &uid(1), &[1]), node.scout.program(501, &uid(2), &[2]));
    node.look_until_adopted();
    let (lc, _descriptor) = node.hooked(3, 3);
    lc.becomes(false, node.world.clock.now());
    quiet(&node.world);
    assert_eq!(node.group(3), (true, 1_000_000));
    let slices = [node.group(1).1, node.group(2).1];
    assert_eq!(slices, [1, 1]);
    assert_ne!(node.group(1).0, node.group(2).0, "one of them at a time");
}

#[test]
fn when_it_ends_nothing_of_it_is_kept_and_the_others_go_on() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let raw = node.scout.program(500, &uid(1), &[1]);
    node.look_until_adopted();
    assert_eq!(node.adopted(1), 1.0);
    node.scout.die(500);
    raw.closes();
    quiet(&node.world);
    assert_eq!(node.adopted(1), 0.0);
    let [_, hooked] = node.enabled_ms([1, 2]);
    assert_eq!(hooked, 10_000);
}

#[test]
fn when_its_pod_is_no_client_any_more_it_is_let_go() {
    let mut node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let raw = node.scout.program(500, &uid(1), &[1]);
    node.look_until_adopted();
    until("it is stopped", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        !node.group(1).0
    });
    node.agent.set(&[pod(&uid(2))]);
    quiet(&node.world);
    assert_eq!(node.group(1), (true, 2048));
    node.scout.shut(500, Why::NoGroups);
    raw.closes();
}

#[test]
fn a_child_that_has_inherited_its_parents_file_is_not_taken_for_another() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _parent = node.scout.program(500, &uid(1), &[1]);
    let _child = node.scout.program(501, &uid(1), &[1]);
    node.look_until_adopted();
    assert_eq!(node.adopted(1), 1.0);
    // The one that was taken for the owner ends; the other one lives, and is found when it is looked into the next time.
    node.scout.die(500);
    until("the other one is adopted", || {
        node.look();
        node.adopted(1) == 1.0
    });
    let turns = node.enabled_ms([1, 2]);
    assert!(turns.iter().all(|ms| (4500..=5500).contains(ms)), "{turns:?}");
}

#[test]
fn what_cannot_be_reached_or_controlled_is_counted_by_why() {
    let mut node = Node::with(&[pod(&uid(1)), pod(&uid(2)), pod(&uid(3))]);
    node.scout.unreachable(500, &uid(1), Why::NotPermitted);
    let _raw = node.scout.program(501, &uid(2), &[2]);
    let _many = node.scout.program(502, &uid(3), &(100..200).collect::<Vec<_>>());
    node.world.driver.fail(2, Some(failure()));
    let expected = [(1, "not_permitted"), (2, "control_failed"), (3, "too_many")];
    until("all of them are counted", || {
        node.look();
        expected.iter().all(|(n, why)| node.unsteered(*n, why) == 1.0)
    });
    assert_eq!([1, 2, 3].map(|n| node.adopted(n)), [0.0; 3]);
    assert_eq!(node.agent.usage(&uid(1)).unwrap().unsteered_processes["not_permitted"], 1);
    node.scout.die(500);
    node.look();
    assert_eq!(node.unsteered(1, "not_permitted"), 0.0);
}

/// A pod could otherwise get rid of all turns by one process that cannot be controlled.
#[test]
fn a_process_that_cannot_be_controlled_does_not_free_the_others_of_its_pod() {
    let node = Node::new();
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _bad = node.scout.program(500, &uid(1), &[1]);
    let _good = node.scout.program(501, &uid(1), &[11]);
    node.world.driver.fail(1, Some(failure()));
    until("one is adopted, the other one not", || {
        node.look();
        (node.adopted(1), node.unsteered(1, "control_failed")) == (1.0, 1.0)
    });
    let turns = node.enabled_ms([11, 2]);
    assert!(turns.iter().all(|ms| (4500..=5500).contains(ms)), "{turns:?}");
    node.look_until_adopted();
    assert_eq!((node.adopted(1), node.unsteered(1, "control_failed")), (1.0, 1.0));
}
