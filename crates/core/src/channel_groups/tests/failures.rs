//! Controls that fail and processes that die.

use super::simulation::{MS, S, Simulation, Work};
use crate::channel_groups::{
    ChannelGroupPolicy, ControlOp, ControlOutcome, Event, GroupId, Reconciler, Setting,
};
use crate::{ClientId, ProcessId};
use std::collections::BTreeSet;

/// Latency-critical work at the begin. The process counts as one that works for 10 s from then on.
const ONE_REQUEST: Work = Work::Periodic { from: S, period: 3_600 * S, busy: MS };

#[test]
fn group_whose_slice_cannot_be_set_lengthens_the_slices_of_others() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.critical(3, ONE_REQUEST);
    sim.run(S);
    let from = sim.begun;
    sim.fails = Box::new(move |number, control| {
        let bad = number >= from && control.group == GroupId(1);
        if bad { ControlOutcome::Failed } else { ControlOutcome::Done }
    });
    sim.run(2 * S);
    assert!(sim.scheduler.is_on_probation(ProcessId(1)));
    assert_eq!(sim.gpu[&GroupId(2)], Setting { enabled: true, slice_us: 1000 });
    sim.dies(1);
    sim.run(S);
    assert_eq!(sim.gpu[&GroupId(2)], Setting { enabled: true, slice_us: 1 });
}

/// Two groups that keep slices which may be tiny: only one of them may be enabled while that lasts.
#[test]
fn releases_that_fail_are_repeated_until_every_group_is_free() {
    let (first, second) = (GroupId(1), GroupId(2));
    let mut reconciler = Reconciler::new(true);
    let settle = |reconciler: &mut Reconciler, sets_slices: bool| {
        reconciler.retry(u64::MAX);
        while let Some(control) = reconciler.begin() {
            let fails = !sets_slices && matches!(control.op, ControlOp::SetSlice(_));
            reconciler.done(if fails { ControlOutcome::Failed } else { ControlOutcome::Done }, 0);
        }
    };
    for group in [first, second] {
        reconciler.add(group);
    }
    settle(&mut reconciler, true);
    for group in [first, second] {
        reconciler.want(group, Setting { enabled: false, slice_us: 1 });
    }
    settle(&mut reconciler, true);
    for group in [first, second] {
        reconciler.release(group);
    }
    for _ in 0..3 {
        settle(&mut reconciler, false);
        assert_eq!(reconciler.take_released(), []);
        let enabled = [first, second].into_iter().filter(|group| reconciler.may_run(*group));
        assert_eq!(enabled.count(), 1);
    }
    settle(&mut reconciler, true);
    assert_eq!(reconciler.take_released(), [first, second]);
}

#[test]
fn no_control_is_made_for_a_disabled_process_that_died() {
    let mut sim = Simulation::new();
    for id in 1..=3 {
        sim.best_effort(id, 30, Work::Always);
    }
    sim.run(S);
    let stopped = (1..=3).find(|id| !sim.gpu[&GroupId(*id)].enabled).unwrap();
    sim.dies(stopped);
    sim.reset_counts();
    sim.run(S);
    assert!(sim.controls.iter().all(|(begun, _, c)| c.group != GroupId(stopped) || *begun <= sim.now - S));
    let used: u64 = sim.gpu_time.values().sum();
    assert!(used > 980 * MS, "{} ms of 1 s were used", used / MS);
}

#[test]
fn next_client_runs_at_once_when_the_holder_dies() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.run(S);
    // In the middle of a quantum.
    while sim.gpu.values().filter(|setting| setting.enabled).count() != 1 {
        sim.run(MS);
    }
    let holder = (1..=2).find(|id| sim.gpu[&GroupId(*id)].enabled).unwrap();
    sim.dies(holder);
    sim.run(2 * MS);
    assert!(sim.gpu[&GroupId(3 - holder)].enabled);
}

#[test]
fn context_destroyed_during_a_control_does_not_count_as_a_failure() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.run(S);
    let from = sim.begun;
    sim.fails =
        Box::new(move |number, _| if number == from { ControlOutcome::Gone } else { ControlOutcome::Done });
    sim.run(S);
    let id = sim.processes.keys().copied().find(|id| sim.scheduler.quantum_state(*id).is_none()).unwrap();
    let group = GroupId(id.0);
    let released = Event::Released(group);
    assert_eq!(sim.events, [Event::GroupsDestroyed(id), released]);
    // The next group of the process is controlled again.
    let class = crate::ledger::Class::BestEffort;
    sim.process(id.0, id.0, &[9], class, Work::Always);
    sim.run(S);
    assert!(sim.scheduler.quantum_state(id).is_some());
}

#[test]
fn groups_of_a_process_that_leaves_are_set_free() {
    let mut sim = Simulation::new();
    for id in 1..=3 {
        sim.best_effort(id, 30, Work::Always);
    }
    sim.run(S);
    for id in 1..=3 {
        sim.scheduler.remove_process(ProcessId(id), &mut sim.tokens, sim.now);
    }
    sim.run(100 * MS);
    for id in 1..=3 {
        assert_eq!(sim.gpu[&GroupId(id)], Setting::FREE);
        assert!(sim.events.contains(&Event::Released(GroupId(id))));
    }
}

fn run_until_disabled(sim: &mut Simulation, group: u64) {
    let stops = (0..1000).any(|_| {
        sim.run(MS);
        !sim.gpu[&GroupId(group)].enabled
    });
    assert!(stops, "{:?}", sim.gpu);
}

/// A process announces these groups, in place of those announced before.
fn announces(sim: &mut Simulation, id: u64, groups: &[u64]) -> bool {
    let groups: Vec<GroupId> = groups.iter().map(|group| GroupId(*group)).collect();
    let owner = (ClientId(id), crate::ledger::Class::BestEffort);
    sim.scheduler.announce(ProcessId(id), owner, (groups, &BTreeSet::new()), &mut sim.tokens, sim.now)
}

#[test]
fn disabled_group_that_is_not_announced_again_is_enabled() {
    let mut sim = Simulation::new();
    sim.client(1, 50, 100, crate::ledger::Class::BestEffort);
    sim.process(1, 1, &[1, 11], crate::ledger::Class::BestEffort, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.run(S);
    run_until_disabled(&mut sim, 11);
    assert!(announces(&mut sim, 1, &[1]));
    sim.run(10 * MS);
    assert_eq!(sim.gpu[&GroupId(11)], Setting::FREE);
    assert!(sim.events.contains(&Event::Released(GroupId(11))));
    // Without groups the process is token-scheduled, and none of its groups stays disabled.
    run_until_disabled(&mut sim, 1);
    assert!(!announces(&mut sim, 1, &[]));
    sim.run(10 * MS);
    assert_eq!(sim.gpu[&GroupId(1)], Setting::FREE);
}

#[test]
fn group_that_is_announced_again_during_its_release_stays_controlled() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.run(S);
    run_until_disabled(&mut sim, 1);
    assert!(!announces(&mut sim, 1, &[]));
    assert!(announces(&mut sim, 1, &[1]));
    sim.run(S);
    assert_eq!(sim.events, []);
    sim.reset_counts();
    sim.run(10 * S);
    assert!(sim.shares().iter().all(|share| (share - 50.0).abs() < 1.0), "{:?}", sim.shares());
}

#[test]
fn process_that_announces_no_groups_is_charged_as_it_reports() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.run(S);
    assert!(!announces(&mut sim, 1, &[]));
    let charged = |sim: &Simulation| sim.tokens.usage(ClientId(1), sim.now).unwrap().charged_ns;
    let before = charged(&sim);
    sim.tokens.request(ProcessId(1), sim.now, crate::ledger::GrantRequest::default()).unwrap();
    sim.tokens.advance(sim.now);
    sim.now += 50 * MS;
    sim.tokens.returned(ProcessId(1), sim.now, 10 * MS, 0).unwrap();
    assert_eq!(charged(&sim) - before, 10 * MS, "charged as reported");
}

#[test]
fn announced_group_that_does_not_exist_does_not_lengthen_slices() {
    let mut sim = Simulation::new();
    sim.best_effort(2, 50, Work::Always);
    sim.critical(3, ONE_REQUEST);
    sim.run(S);
    sim.fails = Box::new(|_, control| match control.group {
        GroupId(1) if matches!(control.op, ControlOp::SetSlice(_)) => ControlOutcome::Failed,
        _ => ControlOutcome::Done,
    });
    sim.best_effort(1, 50, Work::Always);
    sim.run(S);
    assert!(sim.scheduler.is_on_probation(ProcessId(1)));
    assert_eq!(sim.gpu[&GroupId(2)], Setting { enabled: true, slice_us: 1 });
}

#[test]
fn no_wakeup_is_due_while_a_control_hangs() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.critical(3, Work::Always);
    sim.run(S);
    // A quantum has ended and the hand-off waits for a good moment. Then a control of another process begins and hangs.
    let waits = (0..1000).any(|_| {
        sim.run(MS);
        sim.scheduler.window.wake_at(&ChannelGroupPolicy::default(), sim.now).is_some()
    });
    assert!(waits);
    sim.hangs = true;
    sim.best_effort(4, 50, Work::Never);
    sim.run(MS);
    let long_after = sim.now + S;
    let wake = sim.scheduler.next_wakeup(long_after);
    assert!(wake.is_none_or(|wake| wake > long_after), "{wake:?} at {long_after}");
}

#[test]
fn disconnected_process_is_released_after_a_delay_only_if_it_still_lives() {
    for ends in [true, false] {
        let mut sim = Simulation::new();
        sim.best_effort(1, 50, Work::Always);
        sim.best_effort(2, 50, Work::Always);
        sim.run(S);
        run_until_disabled(&mut sim, 2);
        sim.reset_counts();
        sim.scheduler.disconnect(ProcessId(2), &mut sim.tokens, sim.now);
        sim.tokens.process_gone(ProcessId(2), sim.now);
        sim.run(9 * MS);
        if ends {
            sim.dies(2);
        } else {
            sim.processes.remove(&ProcessId(2));
        }
        sim.run(S);
        let made: Vec<ControlOp> =
            sim.controls.iter().filter(|(.., c)| c.group == GroupId(2)).map(|c| c.2.op).collect();
        assert_eq!(made, if ends { vec![] } else { vec![ControlOp::Enable] });
        assert!(ends || sim.gpu[&GroupId(2)] == Setting::FREE);
    }
}

#[test]
fn process_that_reconnects_and_announces_its_groups_keeps_its_share() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.run(S);
    sim.scheduler.disconnect(ProcessId(2), &mut sim.tokens, sim.now);
    sim.run(5 * MS);
    assert!(announces(&mut sim, 2, &[2]));
    sim.reset_counts();
    sim.run(10 * S);
    assert_eq!(sim.events, []);
    assert!(sim.shares().iter().all(|share| (share - 50.0).abs() < 1.0), "{:?}", sim.shares());
}
