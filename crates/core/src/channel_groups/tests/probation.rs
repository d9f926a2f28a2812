//! Processes of which controls fail, and a driver that recovers.

use super::simulation::{MS, S, Simulation, Work};
use crate::channel_groups::{Control, ControlOp, ControlOutcome, Event, GroupId, Setting};
use crate::ledger::{Class, GrantRequest};
use crate::{ClientId, ProcessId};

/// Two trainings with half of the GPU each, for 1 s.
fn two() -> Simulation {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.run(S);
    sim
}

/// From here on these controls fail.
fn fail(sim: &mut Simulation, which: impl Fn(Control) -> bool + 'static) {
    sim.fails = Box::new(move |_, control| match which(control) {
        true => ControlOutcome::Failed,
        false => ControlOutcome::Done,
    });
}

/// So many controls from the next one on fail.
fn fail_next(sim: &mut Simulation, count: u64, which: impl Fn(Control) -> bool + 'static) {
    let left = std::cell::Cell::new(count);
    fail(sim, move |control| {
        let fails = which(control) && left.get() > 0;
        left.set(left.get() - u64::from(fails));
        fails
    });
}

fn recover(sim: &mut Simulation) {
    fail(sim, |_| false);
}

fn is_disable(control: Control) -> bool {
    control.op == ControlOp::Disable
}

#[test]
fn control_that_fails_once_is_repeated_and_changes_no_share() {
    let mut sim = two();
    fail_next(&mut sim, 1, is_disable);
    sim.reset_counts();
    sim.run(10 * S);
    assert_eq!(sim.events, []);
    assert!(sim.shares().iter().all(|share| (share - 50.0).abs() < 1.0), "{:?}", sim.shares());
}

#[test]
fn process_whose_control_fails_repeatedly_is_free_for_a_second_and_then_hardware_scheduled() {
    let mut sim = two();
    fail_next(&mut sim, 2, |control| is_disable(control) && control.group == GroupId(2));
    sim.run(200 * MS);
    assert_eq!(sim.events, [Event::ProbationBegan(ProcessId(2))]);
    assert_eq!(sim.gpu[&GroupId(2)], Setting::FREE);
    assert_eq!(sim.scheduler.quantum_state(ProcessId(2)), None);
    assert!(!sim.scheduler.has_controlled_groups(ProcessId(2)));
    // For the ledger, the other client holds the GPU.
    sim.reset_counts();
    sim.run(500 * MS);
    assert_eq!(sim.count(|op| op == ControlOp::Disable), 0);
    sim.run(S);
    assert!(sim.scheduler.quantum_state(ProcessId(2)).is_some());
    sim.reset_counts();
    sim.run(10 * S);
    assert!(sim.shares().iter().all(|share| (share - 50.0).abs() < 1.0), "{:?}", sim.shares());
}

#[test]
fn other_processes_of_the_client_stay_hardware_scheduled() {
    let mut sim = two();
    sim.process(22, 2, &[22], Class::BestEffort, Work::Always);
    fail(&mut sim, |control| is_disable(control) && control.group == GroupId(2));
    sim.run(S);
    let controlled = [2, 22].map(|id| sim.scheduler.has_controlled_groups(ProcessId(id)));
    assert_eq!(controlled, [false, true]);
}

#[test]
fn process_is_hardware_scheduled_within_10_s_of_recovery_after_a_failure_of_any_length() {
    for failure in [S / 2, 3 * S, 20 * S, 300 * S, 301 * S, 303 * S] {
        let mut sim = two();
        fail(&mut sim, |_| true);
        sim.run(failure);
        assert!(sim.scheduler.on_probation() > 0);
        recover(&mut sim);
        sim.run(10 * S);
        let states = [1, 2].map(|id| sim.scheduler.quantum_state(ProcessId(id)));
        assert!(states.iter().all(Option::is_some), "{states:?} after {failure} ns");
        sim.reset_counts();
        sim.run(10 * S);
        assert!(sim.shares().iter().all(|share| (share - 50.0).abs() < 1.0), "{:?}", sim.shares());
    }
}

#[test]
fn disabled_group_that_could_not_be_enabled_is_enabled_when_the_driver_recovers() {
    let mut sim = two();
    let disabled = (1..=2).find(|id| !sim.gpu[&GroupId(*id)].enabled).unwrap();
    fail(&mut sim, |_| true);
    sim.scheduler.remove_process(ProcessId(disabled), &mut sim.tokens, sim.now);
    sim.tokens.process_gone(ProcessId(disabled), sim.now);
    sim.run(20 * S);
    assert!(!sim.gpu[&GroupId(disabled)].enabled);
    sim.controls.clear();
    sim.run(80 * S);
    let tries = sim.controls.iter().filter(|(_, _, control)| control.group == GroupId(disabled));
    assert!((10..=11).contains(&tries.count()), "one each 8 s");
    recover(&mut sim);
    sim.run(8 * S + 100 * MS);
    assert_eq!(sim.gpu[&GroupId(disabled)], Setting::FREE);
    assert!(sim.events.contains(&Event::Released(GroupId(disabled))), "{:?}", sim.events);
}

/// Seconds from each beginning of a probation to its end, while every control that disables fails.
fn probations(sim: &mut Simulation, ns: u64) -> Vec<u64> {
    let (mut begun, mut lengths) = (Vec::new(), Vec::new());
    let end = sim.now + ns;
    while sim.now < end {
        let was = sim.scheduler.is_on_probation(ProcessId(2));
        // The next one may begin two milliseconds after the end of one.
        sim.run(MS);
        match (was, sim.scheduler.is_on_probation(ProcessId(2))) {
            (false, true) => begun.push(sim.now),
            (true, false) => lengths.extend(begun.last().map(|begun| (sim.now - begun + S / 2) / S)),
            _ => {}
        }
    }
    lengths
}

#[test]
fn delay_doubles_up_to_8_s_and_is_short_again_after_a_minute_without_failure() {
    let mut sim = two();
    fail(&mut sim, |control| is_disable(control) && control.group == GroupId(2));
    let lengths = probations(&mut sim, 25 * S);
    assert_eq!(lengths, [1, 2, 4, 8, 8]);
    recover(&mut sim);
    sim.run(20 * S);
    fail_next(&mut sim, 2, |control| is_disable(control) && control.group == GroupId(2));
    assert_eq!(probations(&mut sim, 20 * S), [8]);
    sim.run(60 * S);
    fail_next(&mut sim, 2, |control| is_disable(control) && control.group == GroupId(2));
    assert_eq!(probations(&mut sim, 20 * S), [1]);
}

#[test]
fn process_on_probation_takes_grants_of_the_ledger() {
    let mut sim = two();
    fail_next(&mut sim, 2, |control| is_disable(control) && control.group == GroupId(2));
    sim.run(200 * MS);
    assert!(sim.scheduler.is_on_probation(ProcessId(2)));
    sim.tokens.request(ProcessId(2), sim.now, GrantRequest::default()).unwrap();
    while !sim.tokens.holds(ProcessId(2)) {
        sim.run(MS);
    }
    sim.run(20 * MS);
    let charged = |sim: &Simulation| sim.tokens.usage(ClientId(2), sim.now).unwrap().charged_ns;
    let before = charged(&sim);
    sim.tokens.returned(ProcessId(2), sim.now, 7 * MS, 0).unwrap();
    assert_eq!(charged(&sim) - before, 7 * MS, "charged as it reports");
}

#[test]
fn process_that_leaves_or_dies_during_probation_leaves_nothing_behind() {
    for dies in [false, true] {
        let mut sim = two();
        fail(&mut sim, |control| control.group == GroupId(2));
        sim.run(5 * S);
        assert!(sim.scheduler.is_on_probation(ProcessId(2)));
        if dies {
            sim.dies(2);
        } else {
            sim.scheduler.disconnect(ProcessId(2), &mut sim.tokens, sim.now);
            sim.tokens.process_gone(ProcessId(2), sim.now);
            sim.processes.remove(&ProcessId(2));
            recover(&mut sim);
        }
        sim.run(10 * S);
        assert_eq!(sim.scheduler.on_probation(), 0);
        assert!(!sim.scheduler.reconciler.groups.contains_key(&GroupId(2)));
        assert!(dies || sim.gpu[&GroupId(2)] == Setting::FREE);
    }
}

#[test]
fn announcing_the_same_groups_again_does_not_end_a_probation() {
    let mut sim = two();
    fail(&mut sim, |control| control.group == GroupId(2));
    sim.run(20 * S);
    sim.controls.clear();
    for _ in 0..100 {
        sim.announces_only(2, 1);
        sim.run(10 * MS);
        assert!(!sim.scheduler.has_controlled_groups(ProcessId(2)));
    }
    recover(&mut sim);
    sim.run(10 * S);
    assert!(sim.scheduler.has_controlled_groups(ProcessId(2)));
}

#[test]
fn latency_critical_process_gets_its_slice_back() {
    let mut sim = two();
    sim.critical(3, Work::Never);
    fail(&mut sim, |control| control.group == GroupId(3));
    sim.run(5 * S);
    assert!(sim.scheduler.is_on_probation(ProcessId(3)));
    recover(&mut sim);
    sim.run(10 * S);
    assert_eq!(sim.gpu[&GroupId(3)], Setting { enabled: true, slice_us: 1_000_000 });
}
