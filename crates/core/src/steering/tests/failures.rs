//! Controls that fail, processes that die.

use super::world::{MS, S, Work, World};
use crate::ledger::PeerKind;
use crate::steering::{Event, GroupId, Op, Outcome, Released, Setting};
use crate::{ClientId, ProcessId};

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
    let steered =
        world.steering.announce(ProcessId(9), (client, class), groups, &mut world.tokens, world.now);
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
    let released = Event::Released(Released { group, is_free: false });
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
