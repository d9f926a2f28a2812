//! Controls that fail, processes that die.

use super::world::{MS, S, Work, World};
use crate::ledger::PeerKind;
use crate::steering::{Event, GroupId, Op, Outcome, Released, Setting, SteeringPolicy};
use crate::{ClientId, ProcessId};
use std::collections::BTreeSet;

#[test]
fn a_client_whose_control_failed_is_set_free_and_not_steered_again() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.best_effort(2, 50, Work::Always);
    world.run(S);
    let from = world.begun;
    world.fails = Box::new(move |number, control| {
        let bad = number >= from && control.group == GroupId(2) && control.op == Op::Stop;
        if bad { Outcome::Failed } else { Outcome::Done }
    });
    world.run(S);
    assert_eq!(
        world.events,
        [Event::GivenUp(ProcessId(2)), Event::Released(Released { group: GroupId(2), is_free: true })]
    );
    assert_eq!(world.gpu[&GroupId(2)], Setting::FREE);
    assert_eq!(world.steering.turn(ProcessId(2)), None);
    let groups = vec![GroupId(9)];
    let (client, class) = (ClientId(2), crate::ledger::Class::BestEffort);
    world.tokens.add_process(ProcessId(9), client, PeerKind::Returns).unwrap();
    let steered = world.steering.announce(
        ProcessId(9),
        (client, class),
        (groups, &BTreeSet::new()),
        &mut world.tokens,
        world.now,
    );
    assert!(!steered, "what failed once is not relied on again");
    // The other one has the GPU as far as is known to the ledger.
    world.forget_what_was();
    world.run(S);
    assert_eq!(world.count(|op| op == Op::Stop), 0);
}

#[test]
fn a_group_that_cannot_be_helped_does_not_stop_the_others_but_lengthens_their_slices() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.best_effort(2, 50, Work::Always);
    world.critical(3, Work::Never);
    world.run(S);
    let from = world.begun;
    world.fails = Box::new(move |number, control| {
        let bad = number >= from && control.group == GroupId(1);
        if bad { Outcome::Failed } else { Outcome::Done }
    });
    world.run(2 * S);
    let told = Event::Released(Released { group: GroupId(1), is_free: false });
    assert!(world.events.contains(&told), "{:?}", world.events);
    assert_eq!(world.gpu[&GroupId(2)], Setting { enabled: true, slice_us: 1000 });
    world.dies(1);
    world.run(S);
    assert_eq!(world.gpu[&GroupId(2)], Setting { enabled: true, slice_us: 1 });
}

#[test]
fn when_a_stopped_process_dies_nothing_is_left_of_it() {
    let mut world = World::new();
    for id in 1..=3 {
        world.best_effort(id, 30, Work::Always);
    }
    world.run(S);
    let stopped = (1..=3).find(|id| !world.gpu[&GroupId(*id)].enabled).unwrap();
    world.dies(stopped);
    world.forget_what_was();
    world.run(S);
    assert!(
        world.controls.iter().all(|(begun, _, c)| c.group != GroupId(stopped) || *begun <= world.now - S)
    );
    let used: u64 = world.had.values().sum();
    assert!(used > 980 * MS, "{} ms of 1 s were used", used / MS);
}

#[test]
fn when_the_holder_dies_the_next_one_runs_at_once() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.best_effort(2, 50, Work::Always);
    world.run(S);
    // In the middle of a turn.
    while world.gpu.values().filter(|setting| setting.enabled).count() != 1 {
        world.run(MS);
    }
    let holder = (1..=2).find(|id| world.gpu[&GroupId(*id)].enabled).unwrap();
    world.dies(holder);
    world.run(2 * MS);
    assert!(world.gpu[&GroupId(3 - holder)].enabled);
}

#[test]
fn a_context_that_was_destroyed_in_the_middle_of_a_control_is_nobodys_fault() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.best_effort(2, 50, Work::Always);
    world.run(S);
    let from = world.begun;
    world.fails = Box::new(move |number, _| if number == from { Outcome::Gone } else { Outcome::Done });
    world.run(S);
    let id = world.processes.keys().copied().find(|id| world.steering.turn(*id).is_none()).unwrap();
    let group = GroupId(id.0);
    let released = Event::Released(Released { group, is_free: true });
    assert_eq!(world.events, [Event::Unsteered(id), released]);
    // Its next one is steered again.
    let class = crate::ledger::Class::BestEffort;
    world.process(id.0, id.0, &[9], class, Work::Always);
    world.run(S);
    assert!(world.steering.turn(id).is_some());
}

#[test]
fn who_leaves_is_set_free() {
    let mut world = World::new();
    for id in 1..=3 {
        world.best_effort(id, 30, Work::Always);
    }
    world.run(S);
    for id in 1..=3 {
        world.steering.leave(ProcessId(id), &mut world.tokens, world.now);
    }
    world.run(100 * MS);
    for id in 1..=3 {
        assert_eq!(world.gpu[&GroupId(id)], Setting::FREE);
        assert!(world.events.contains(&Event::Released(Released { group: GroupId(id), is_free: true })));
    }
}

fn runs_until_stopped(world: &mut World, group: u64) {
    let stops = (0..1000).any(|_| {
        world.run(MS);
        !world.gpu[&GroupId(group)].enabled
    });
    assert!(stops, "{:?}", world.gpu);
}

/// Announces a process's groups anew: those that it has from now on.
fn announces(world: &mut World, id: u64, groups: &[u64]) -> bool {
    let groups: Vec<GroupId> = groups.iter().map(|group| GroupId(*group)).collect();
    let whose = (ClientId(id), crate::ledger::Class::BestEffort);
    world.steering.announce(ProcessId(id), whose, (groups, &BTreeSet::new()), &mut world.tokens, world.now)
}

#[test]
fn a_stopped_group_that_is_not_announced_again_is_started() {
    let mut world = World::new();
    world.client(1, 50, 100, crate::ledger::Class::BestEffort);
    world.process(1, 1, &[1, 11], crate::ledger::Class::BestEffort, Work::Always);
    world.best_effort(2, 50, Work::Always);
    world.run(S);
    runs_until_stopped(&mut world, 11);
    assert!(announces(&mut world, 1, &[1]));
    world.run(10 * MS);
    assert_eq!(world.gpu[&GroupId(11)], Setting::FREE);
    assert!(world.events.contains(&Event::Released(Released { group: GroupId(11), is_free: true })));
    // None at all: it takes turns by token, and nothing of it is left stopped.
    runs_until_stopped(&mut world, 1);
    assert!(!announces(&mut world, 1, &[]));
    world.run(10 * MS);
    assert_eq!(world.gpu[&GroupId(1)], Setting::FREE);
}

#[test]
fn a_group_that_is_announced_again_while_it_is_given_back_stays() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.best_effort(2, 50, Work::Always);
    world.run(S);
    runs_until_stopped(&mut world, 1);
    assert!(!announces(&mut world, 1, &[]));
    assert!(announces(&mut world, 1, &[1]));
    world.run(S);
    assert_eq!(world.events, []);
    world.forget_what_was();
    world.run(10 * S);
    assert!(world.shares().iter().all(|share| (share - 50.0).abs() < 1.0), "{:?}", world.shares());
}

#[test]
fn who_ceases_to_be_steered_by_its_own_announcement_is_not_counted_as_running() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.run(S);
    assert!(!announces(&mut world, 1, &[]));
    let charged = |world: &World| world.tokens.usage(ClientId(1), world.now).unwrap().charged_ns;
    let before = charged(&world);
    world.tokens.request(ProcessId(1), world.now, crate::ledger::Ask::default()).unwrap();
    world.tokens.advance(world.now);
    world.now += 50 * MS;
    world.tokens.returned(ProcessId(1), world.now, 10 * MS, 0).unwrap();
    assert_eq!(charged(&world) - before, 10 * MS, "what it reports");
}

#[test]
fn a_group_that_does_not_exist_does_not_lengthen_the_slices_of_others() {
    let mut world = World::new();
    world.best_effort(2, 50, Work::Always);
    world.critical(3, Work::Never);
    world.run(S);
    world.fails = Box::new(|_, control| match control.group {
        GroupId(1) if matches!(control.op, Op::SetSlice(_)) => Outcome::Failed,
        _ => Outcome::Done,
    });
    world.best_effort(1, 50, Work::Always);
    world.run(S);
    let told = Event::Released(Released { group: GroupId(1), is_free: false });
    assert!(world.events.contains(&told), "{:?}", world.events);
    assert_eq!(world.gpu[&GroupId(2)], Setting { enabled: true, slice_us: 1 });
}

#[test]
fn nothing_is_polled_while_a_control_hangs() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.best_effort(2, 50, Work::Always);
    world.critical(3, Work::Always);
    world.run(S);
    // A turn is over and the hand-over waits for a good moment, when a control of somebody else begins and hangs.
    let waits = (0..1000).any(|_| {
        world.run(MS);
        world.steering.gate.wake_at(&SteeringPolicy::default(), world.now).is_some()
    });
    assert!(waits);
    world.hangs = true;
    world.best_effort(4, 50, Work::Never);
    world.run(MS);
    let long_after = world.now + S;
    let wake = world.steering.wake_at(long_after);
    assert!(wake.is_none_or(|wake| wake > long_after), "{wake:?} at {long_after}");
}

#[test]
fn no_control_is_made_for_who_hangs_up_and_ends_and_who_lives_is_set_free_in_a_moment() {
    for ends in [true, false] {
        let mut world = World::new();
        world.best_effort(1, 50, Work::Always);
        world.best_effort(2, 50, Work::Always);
        world.run(S);
        runs_until_stopped(&mut world, 2);
        world.forget_what_was();
        world.steering.part(ProcessId(2), &mut world.tokens, world.now);
        world.tokens.process_gone(ProcessId(2), world.now);
        world.run(9 * MS);
        if ends {
            world.dies(2);
        } else {
            world.processes.remove(&ProcessId(2));
        }
        world.run(S);
        let its: Vec<Op> =
            world.controls.iter().filter(|(.., c)| c.group == GroupId(2)).map(|c| c.2.op).collect();
        assert_eq!(its, if ends { vec![] } else { vec![Op::Start] });
        assert!(ends || world.gpu[&GroupId(2)] == Setting::FREE);
    }
}

#[test]
fn who_hangs_up_and_announces_its_groups_again_is_steered_as_before() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.best_effort(2, 50, Work::Always);
    world.run(S);
    world.steering.part(ProcessId(2), &mut world.tokens, world.now);
    world.run(5 * MS);
    assert!(announces(&mut world, 2, &[2]));
    world.forget_what_was();
    world.run(10 * S);
    assert_eq!(world.events, []);
    assert!(world.shares().iter().all(|share| (share - 50.0).abs() < 1.0), "{:?}", world.shares());
}
