//! Hand-overs beside somebody latency-critical.

use super::world::{MS, S, Work, World};
use crate::ProcessId;
use crate::ledger::Class;
use crate::steering::{GroupId, Op, Setting, SteeringPolicy};

/// Requests of 1 ms every 10 ms.
const REQUESTS: Work = Work::Periodic { from: 0, period: 10 * MS, busy: MS };

fn overlaps(world: &World, work: Work) -> usize {
    let Work::Periodic { from, period, busy } = work else { return 0 };
    let touches = |begun: u64, ended: u64| {
        let into = (begun - from) % period;
        into < busy || into + (ended - begun) > period
    };
    let moves = world.controls.iter().filter(|(_, _, c)| matches!(c.op, Op::Stop | Op::Start));
    moves.filter(|(begun, ended, _)| touches(*begun, *ended)).count()
}

#[test]
fn two_trainings_change_places_between_requests_and_what_they_wait_is_paid_back() {
    let mut world = World::new();
    world.best_effort(1, 30, Work::Always);
    world.best_effort(2, 70, Work::Always);
    world.critical(3, REQUESTS);
    world.run(S);
    world.forget_what_was();
    world.run(60 * S);
    assert_eq!((overlaps(&world, REQUESTS), world.steering.forced()), (0, 0));
    let shares = world.shares();
    assert!((shares[0] - 30.0).abs() < 0.5, "{shares:?}");
    assert!(world.had[&ProcessId(3)] >= 5990 * MS, "{:?}", world.had);
    let used: u64 = world.had.values().sum();
    assert!(used > 59_000 * MS, "{} ms of 60 s were used", used / MS);
}

#[test]
fn somebody_who_is_always_busy_is_disturbed_after_a_while() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.best_effort(2, 50, Work::Always);
    world.critical(3, Work::Always);
    world.run(2 * S);
    assert!(world.steering.forced() > 10, "{}", world.steering.forced());
    let stops = world.count(|op| op == Op::Stop);
    assert!(stops > 10 && stops < 60, "{stops}");
}

#[test]
fn while_somebody_latency_critical_is_there_slices_are_short_and_after_that_they_are_as_they_were() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.best_effort(2, 50, Work::Never);
    world.run(S);
    world.critical(3, Work::Never);
    world.run(S);
    assert_eq!(world.gpu[&GroupId(1)], Setting { enabled: true, slice_us: 1 });
    assert_eq!(world.gpu[&GroupId(3)], Setting { enabled: true, slice_us: 1_000_000 });
    assert_eq!(world.gpu[&GroupId(2)].slice_us, 1);
    world.critical(4, Work::Never);
    world.run(S);
    assert_eq!(world.gpu[&GroupId(3)].slice_us, 5_000);
    world.dies(3);
    world.dies(4);
    world.run(S);
    assert_eq!(world.gpu[&GroupId(1)], Setting::FREE);
    assert_eq!(world.gpu[&GroupId(2)].slice_us, Setting::FREE.slice_us);
    assert!(world.steering.is_settled());
}

#[test]
fn two_processes_of_one_client_take_turns_while_somebody_latency_critical_is_there() {
    let mut world = World::new();
    world.client(1, 50, 100, Class::BestEffort);
    world.process(1, 1, &[1], Class::BestEffort, Work::Always);
    world.process(2, 1, &[2, 3], Class::BestEffort, Work::Always);
    world.critical(4, REQUESTS);
    world.run(S);
    world.forget_what_was();
    world.run(10 * S);
    let starts = |group| {
        world.controls.iter().filter(|(_, _, c)| c.group == GroupId(group) && c.op == Op::Start).count()
    };
    for group in 1..=3 {
        assert!((40..=80).contains(&starts(group)), "group {group} began {} turns", starts(group));
    }
    assert_eq!(overlaps(&world, REQUESTS), 0);
}

#[test]
fn who_is_alone_beside_somebody_latency_critical_is_never_stopped() {
    let mut world = World::new();
    world.best_effort(1, 50, Work::Always);
    world.critical(2, REQUESTS);
    world.run(10 * S);
    assert_eq!(world.count(|op| op == Op::Stop), 0, "{:?}", world.controls);
}

#[test]
fn an_idle_process_of_a_client_does_not_keep_its_other_one_waiting() {
    let mut world = World::new();
    world.client(1, 50, 100, Class::BestEffort);
    world.process(
        1,
        1,
        &[1],
        Class::BestEffort,
        Work::Periodic { from: 0, period: 300 * MS, busy: 100 * MS },
    );
    world.process(2, 1, &[2], Class::BestEffort, Work::Always);
    world.critical(3, REQUESTS);
    world.run(4 * S);
    world.forget_what_was();
    world.run(60 * S);
    let used: u64 = world.had.values().sum();
    assert!(used > 56_500 * MS, "{} ms of 60 s were used", used / MS);
}

/// A latency-critical process with this work that is best-effort from 2 s on.
fn demoted(work: Work) -> World {
    let mut world = World::new();
    world.critical(1, work);
    world.run(S);
    let client = crate::ClientId(1);
    world.client(1, 50, 100, Class::BestEffort);
    world.steering.set_class(client, Class::BestEffort, &mut world.tokens, world.now);
    world.processes.get_mut(&ProcessId(1)).unwrap().class = Class::BestEffort;
    world
}

#[test]
fn somebody_latency_critical_who_becomes_best_effort_is_not_polled() {
    let mut world = demoted(Work::Never);
    world.run(100 * MS);
    let wake = world.steering.wake_at(world.now).unwrap();
    assert!(wake > world.now, "{wake} at {}", world.now);
    assert_eq!(world.gpu[&GroupId(1)], Setting::FREE);
}

#[test]
fn somebody_latency_critical_who_becomes_best_effort_returns_its_turn_when_it_is_idle() {
    let mut world = demoted(Work::Periodic { from: 0, period: 100 * S, busy: 2 * S + 50 * MS });
    world.run(40 * MS);
    assert_eq!(world.tokens.holders().count(), 1);
    world.run(100 * MS);
    assert_eq!(world.tokens.holders().count(), 0);
}

#[test]
fn a_driver_that_sets_no_slices_is_asked_for_turns_only() {
    let mut world = World::new();
    world.steer_by(SteeringPolicy { slices: false, ..SteeringPolicy::default() });
    world.best_effort(1, 30, Work::Always);
    world.best_effort(2, 70, Work::Always);
    world.run(S);
    world.forget_what_was();
    world.run(60 * S);
    assert!((world.shares()[0] - 30.0).abs() < 0.5, "{:?}", world.shares());
    world.critical(3, REQUESTS);
    world.run(S);
    assert_eq!(world.gpu.values().filter(|setting| setting.enabled).count(), 2, "{:?}", world.gpu);
    for id in 1..=3 {
        world.steering.leave(ProcessId(id), &mut world.tokens, world.now);
    }
    world.run(S);
    assert!(world.gpu.values().all(|setting| *setting == Setting::FREE), "{:?}", world.gpu);
    assert_eq!(world.count(|op| matches!(op, Op::SetSlice(_))), 0);
    assert_eq!(world.events.len(), 3, "all are given back: {:?}", world.events);
}
