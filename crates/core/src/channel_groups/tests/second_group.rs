//! A second enabled group beside a latency-critical process that works.

use super::simulation::{MS, S, Simulation, Work};
use crate::ProcessId;
use crate::channel_groups::{ControlOp, ControlOutcome, DEFAULT_SLICE_US, GroupId, Setting};
use crate::ledger::Class;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The processes of client 1, and their groups.
const PAIR: [u64; 2] = [1, 2];
const OTHER: u64 = 3;
const LC: u64 = 4;
const OTHER_LC: u64 = 5;

/// Requests of 1 ms every 20 ms.
const REQUESTS: Work = Work::Periodic { from: 0, period: 20 * MS, busy: MS };
/// Work in turn.
const TURNS: [Work; 2] = [
    Work::Periodic { from: 0, period: 2 * MS, busy: MS },
    Work::Periodic { from: MS, period: 2 * MS, busy: MS },
];

/// A client of two processes beside a latency-critical one.
fn simulation(works: [Work; 2]) -> Simulation {
    let mut sim = Simulation::new();
    sim.client(1, 40, 100, Class::BestEffort);
    for (process, work) in PAIR.into_iter().zip(works) {
        sim.process(process, 1, &[process], Class::BestEffort, work);
    }
    sim.critical(LC, REQUESTS);
    sim
}

/// A process with two contexts beside a latency-critical one that leads.
fn two_contexts() -> Simulation {
    let mut sim = Simulation::new();
    sim.client(1, 40, 100, Class::BestEffort);
    sim.process(1, 1, &PAIR, Class::BestEffort, Work::Always);
    sim.critical(LC, REQUESTS);
    set_leading(&mut sim, LC, true);
    sim.run(S);
    sim
}

fn set_leading(sim: &mut Simulation, id: u64, leads: bool) {
    let id = ProcessId(id);
    let _ = if leads { sim.leading.insert(id) } else { sim.leading.remove(&id) };
}

fn enabled(sim: &Simulation) -> Vec<u64> {
    let groups = PAIR.into_iter().chain([OTHER]);
    groups.filter(|group| sim.gpu.get(&GroupId(*group)).is_some_and(|setting| setting.enabled)).collect()
}

fn moves(sim: &Simulation) -> usize {
    sim.count(|op| matches!(op, ControlOp::Disable | ControlOp::Enable))
}

#[test]
fn work_in_turn_needs_no_hand_offs_where_hold_kernels_lead_by_the_second_groups_slice() {
    let mut sim = simulation(TURNS);
    sim.run(2 * S);
    assert_eq!((sim.scheduler.wanted_lead_us(), enabled(&sim).len()), (1_000, 1), "asked for, not kept");
    set_leading(&mut sim, LC, true);
    sim.run(S);
    assert_eq!(enabled(&sim), PAIR);
    let mut slices = PAIR.map(|group| sim.gpu[&GroupId(group)].slice_us);
    slices.sort_unstable();
    assert_eq!(slices, [1, 1_000]);
    sim.reset_counts();
    sim.run(60 * S);
    assert_eq!(sim.controls, []);
}

#[test]
fn idle_processes_of_the_client_give_way_to_others_that_take_turns() {
    let mut sim = simulation(TURNS);
    let next = [6, 7];
    for process in next {
        sim.process(process, 1, &[process], Class::BestEffort, Work::Never);
    }
    set_leading(&mut sim, LC, true);
    sim.run(2 * S);
    assert_eq!(enabled(&sim), PAIR);
    let set_work = |sim: &mut Simulation, process: u64, work| {
        sim.processes.get_mut(&ProcessId(process)).unwrap().work = work;
    };
    PAIR.into_iter().for_each(|process| set_work(&mut sim, process, Work::Never));
    next.into_iter().zip(TURNS).for_each(|(process, work)| set_work(&mut sim, process, work));
    sim.run(S);
    let mut both = 0;
    for _ in 0..1_000 {
        sim.run(10 * MS);
        both += u64::from(next.iter().all(|group| sim.gpu[&GroupId(*group)].enabled));
    }
    // At times the idle ones are probed: enabled for a moment.
    assert!(both > 950, "both had their groups in {both} of 1,000 moments");
}

#[test]
fn contexts_of_one_process_are_enabled_together() {
    let mut sim = two_contexts();
    sim.reset_counts();
    sim.run(10 * S);
    assert_eq!((enabled(&sim), moves(&sim)), (PAIR.to_vec(), 0));
}

#[test]
fn contexts_with_work_at_the_same_time_are_enabled_one_after_the_other() {
    let mut sim = two_contexts();
    assert_eq!(enabled(&sim), PAIR);
    let report = |sim: &mut Simulation, at_once: bool| {
        let since = at_once.then_some(sim.now);
        sim.scheduler.set_contexts_at_once(ProcessId(1), since);
    };
    // For a moment: one context's end is not known yet when the other one's work begins.
    report(&mut sim, true);
    sim.run(4 * MS);
    report(&mut sim, false);
    sim.run(S);
    assert_eq!(enabled(&sim), PAIR);
    report(&mut sim, true);
    sim.run(S);
    assert_eq!(enabled(&sim).len(), 1);
    assert_eq!(sim.scheduler.wanted_lead_us(), 0, "a lead costs best effort a part of its time");
    report(&mut sim, false);
    sim.run(20 * S);
    assert_eq!(enabled(&sim), PAIR);
}

#[test]
fn second_group_is_disabled_within_two_controls_when_the_lead_ends() {
    let mut sim = simulation(TURNS);
    set_leading(&mut sim, LC, true);
    sim.run(2 * S);
    assert_eq!(enabled(&sim), PAIR);
    set_leading(&mut sim, LC, false);
    sim.run(2 * MS);
    assert_eq!(enabled(&sim).len(), 1);
}

#[test]
fn every_latency_critical_process_that_works_has_to_lead() {
    let mut sim = simulation(TURNS);
    set_leading(&mut sim, LC, true);
    sim.critical(OTHER_LC, REQUESTS);
    sim.run(2 * S);
    assert_eq!(enabled(&sim).len(), 1);
    set_leading(&mut sim, OTHER_LC, true);
    sim.run(2 * S);
    assert_eq!(enabled(&sim), PAIR);
}

#[test]
fn processes_with_work_at_the_same_time_are_enabled_one_after_the_other() {
    let mut sim = simulation([Work::Always; 2]);
    set_leading(&mut sim, LC, true);
    sim.run(S);
    for _ in 0..1_000 {
        sim.run(5 * MS);
        assert!(enabled(&sim).len() <= 1 || !sim.is_settled());
    }
    assert_eq!(sim.scheduler.wanted_lead_us(), 0, "a lead costs best effort a part of its time");
}

#[test]
fn no_lead_is_asked_for_where_one_process_has_no_work() {
    let mut sim = simulation([Work::Always, Work::Never]);
    sim.run(20 * S);
    assert_eq!(sim.scheduler.wanted_lead_us(), 0);
}

#[test]
fn only_the_holders_groups_are_enabled_and_shares_and_the_rate_of_controls_hold() {
    let mut sim = simulation(TURNS);
    sim.best_effort(OTHER, 60, Work::Always);
    set_leading(&mut sim, LC, true);
    sim.run(2 * S);
    sim.reset_counts();
    let mut both = 0;
    for _ in 0..6_000 {
        sim.run(10 * MS);
        let enabled = enabled(&sim);
        assert!(!sim.is_settled() || enabled == [OTHER] || !enabled.contains(&OTHER), "{enabled:?}");
        both += u64::from(enabled == PAIR);
    }
    assert!(both > 2_000, "the pair had both groups in {both} of 6,000 moments");
    assert!(moves(&sim) <= 60 * 160 + 32, "{} controls in 60 s", moves(&sim));
    let slices = sim.count(|op| matches!(op, ControlOp::SetSlice(_)));
    assert!(slices < 10, "{slices} slices were set");
    let shares = sim.shares();
    assert!((shares[2] - 60.0).abs() < 2.0, "{shares:?}");
}

#[test]
fn default_slices_and_second_groups_exclude_each_other() {
    let mut sim = simulation(TURNS);
    set_leading(&mut sim, LC, true);
    sim.run(2 * S);
    sim.host_bound.insert(ProcessId(LC));
    sim.run(2 * S);
    assert_eq!(sim.scheduler.wanted_lead_us(), 0);
    assert_eq!(enabled(&sim).len(), 1);
    let first = enabled(&sim)[0];
    assert_eq!(sim.gpu[&GroupId(first)], Setting { enabled: true, slice_us: DEFAULT_SLICE_US });
}

#[test]
fn second_groups_begin_every_ten_seconds_in_the_long_run_however_often_the_report_changes() {
    let mut sim = simulation(TURNS);
    sim.run(S);
    let mut begins = 0;
    for step in 0..600 {
        let before = enabled(&sim).len();
        set_leading(&mut sim, LC, step % 2 == 0);
        sim.run(100 * MS);
        begins += u64::from(before < 2 && enabled(&sim).len() == 2);
    }
    assert!((4..=10).contains(&begins), "{begins} in 60 s");
}

fn any_work() -> impl Strategy<Value = Work> {
    let periodic = (0..50u64, 2..60u64, 1..50u64).prop_map(|(from, period, busy)| Work::Periodic {
        from: from * MS,
        period: period * MS,
        busy: busy.min(period - 1) * MS,
    });
    prop_oneof![Just(Work::Always), Just(Work::Never), periodic]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// That at most one enabled group has a tiny slice is asserted by the simulation, at each control.
    #[test]
    fn one_client_at_most_is_enabled_beside_a_working_process_and_one_group_without_a_lead(
        works in (any_work(), any_work(), any_work()),
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), 1..400u64), 1..20),
        failing in prop::collection::btree_set(0..200u64, 0..4),
    ) {
        let mut sim = simulation([works.0, works.1]);
        sim.best_effort(OTHER, 60, works.2);
        let failing: BTreeSet<u64> = failing;
        sim.fails = Box::new(move |number, _| {
            if failing.contains(&number) { ControlOutcome::Failed } else { ControlOutcome::Done }
        });
        for (leads, bound, ms) in steps {
            set_leading(&mut sim, LC, leads);
            let _ = if bound { sim.host_bound.insert(ProcessId(LC)) } else { sim.host_bound.remove(&ProcessId(LC)) };
            sim.run(ms * MS);
            let on_probation = sim.scheduler.on_probation() > 0;
            if !sim.is_settled() || on_probation {
                continue;
            }
            let enabled = enabled(&sim);
            prop_assert!(enabled.len() <= 1 || enabled == PAIR, "{:?}", enabled);
            prop_assert!(leads || enabled.len() <= 1, "{:?} without a lead", enabled);
        }
    }
}
