//! Hand-offs while a latency-critical process is attached.

use super::simulation::{MS, S, Simulation, Work};
use crate::ProcessId;
use crate::channel_groups::{ChannelGroupPolicy, ControlOp, GroupId, Setting};
use crate::ledger::Class;

/// Requests of 1 ms every 10 ms.
const REQUESTS: Work = Work::Periodic { from: 0, period: 10 * MS, busy: MS };

fn overlaps(sim: &Simulation, work: Work) -> usize {
    let Work::Periodic { from, period, busy } = work else { return 0 };
    let touches = |begun: u64, ended: u64| {
        let into = (begun - from) % period;
        into < busy || into + (ended - begun) > period
    };
    let moves =
        sim.controls.iter().filter(|(_, _, c)| matches!(c.op, ControlOp::Disable | ControlOp::Enable));
    moves.filter(|(begun, ended, _)| touches(*begun, *ended)).count()
}

#[test]
fn two_trainings_hand_off_between_requests_and_keep_their_shares() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 30, Work::Always);
    sim.best_effort(2, 70, Work::Always);
    sim.critical(3, REQUESTS);
    sim.run(S);
    sim.reset_counts();
    sim.run(60 * S);
    assert_eq!((overlaps(&sim, REQUESTS), sim.scheduler.forced_hand_offs()), (0, 0));
    let shares = sim.shares();
    assert!((shares[0] - 30.0).abs() < 0.5, "{shares:?}");
    assert!(sim.gpu_time[&ProcessId(3)] >= 5990 * MS, "{:?}", sim.gpu_time);
    let used: u64 = sim.gpu_time.values().sum();
    assert!(used > 59_000 * MS, "{} ms of 60 s were used", used / MS);
}

#[test]
fn hand_off_is_forced_beside_a_process_that_is_always_busy() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.critical(3, Work::Always);
    sim.run(2 * S);
    assert!(sim.scheduler.forced_hand_offs() > 10, "{}", sim.scheduler.forced_hand_offs());
    let stops = sim.count(|op| op == ControlOp::Disable);
    assert!(stops > 10 && stops < 60, "{stops}");
}

#[test]
fn slices_are_short_while_a_latency_critical_process_works_and_reset_when_it_dies() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Never);
    sim.run(S);
    sim.critical(3, REQUESTS);
    sim.run(S);
    assert_eq!(sim.gpu[&GroupId(1)], Setting { enabled: true, slice_us: 1 });
    assert_eq!(sim.gpu[&GroupId(3)], Setting { enabled: true, slice_us: 1_000_000 });
    assert_eq!(sim.gpu[&GroupId(2)].slice_us, 1);
    sim.dies(3);
    sim.run(S);
    assert_eq!(sim.gpu[&GroupId(1)], Setting::FREE);
    assert_eq!(sim.gpu[&GroupId(2)].slice_us, Setting::FREE.slice_us);
    assert!(sim.is_settled());
}

/// Two processes of one client: work of one of them may wait for that of the other.
#[test]
fn all_groups_of_a_client_are_enabled_while_the_latency_critical_processes_have_been_idle_for_ten_seconds() {
    let mut sim = Simulation::new();
    sim.client(1, 50, 100, Class::BestEffort);
    sim.process(1, 1, &[1], Class::BestEffort, Work::Always);
    sim.process(2, 1, &[2], Class::BestEffort, Work::Always);
    // A request a minute, the first one after 20 s.
    sim.critical(3, Work::Periodic { from: 21 * S, period: 60 * S, busy: MS });
    let enabled = |sim: &Simulation| [1, 2].map(|group| sim.gpu[&GroupId(group)]);
    sim.run(19 * S);
    assert_eq!(enabled(&sim), [Setting::FREE; 2], "attached, and never worked");
    assert_eq!(sim.gpu[&GroupId(3)].slice_us, 1_000_000, "it keeps the GPU once it has it");
    // Two groups: a slice for each, and one of them is disabled. A control takes less than 1 ms.
    sim.run(S + 5 * MS);
    let short = enabled(&sim).map(|setting| setting.slice_us);
    assert_eq!((short, enabled(&sim).iter().filter(|setting| setting.enabled).count()), ([1, 1], 1));
    sim.run(9 * S);
    assert_eq!(enabled(&sim).map(|setting| setting.slice_us), [1, 1]);
    sim.run(S + 100 * MS);
    assert_eq!(enabled(&sim), [Setting::FREE; 2]);
}

#[test]
fn latency_critical_slices_are_shared_only_while_several_processes_have_work() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.critical(3, REQUESTS);
    // One request a minute.
    sim.critical(4, Work::Periodic { from: 20 * S, period: 60 * S, busy: MS });
    sim.run(19 * S);
    let slice_us = |sim: &Simulation| [3, 4].map(|group| sim.gpu[&GroupId(group)].slice_us);
    assert_eq!(slice_us(&sim), [1_000_000; 2]);
    sim.run(2 * S);
    assert_eq!(slice_us(&sim), [5_000; 2]);
    sim.run(8 * S);
    assert_eq!(slice_us(&sim), [5_000; 2], "the request was 9 s ago");
    sim.run(2 * S);
    assert_eq!(slice_us(&sim), [1_000_000; 2]);
}

#[test]
fn process_whose_report_alternates_makes_no_controls_of_slices() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.critical(3, REQUESTS);
    sim.critical(4, Work::Forged);
    sim.run(5 * S);
    let slices = sim.count(|op| matches!(op, ControlOp::SetSlice(_)));
    assert!(slices <= 6, "{slices} controls of slices");
}

#[test]
fn groups_of_one_client_rotate_while_a_latency_critical_process_is_attached() {
    let mut sim = Simulation::new();
    sim.client(1, 50, 100, Class::BestEffort);
    sim.process(1, 1, &[1], Class::BestEffort, Work::Always);
    sim.process(2, 1, &[2, 3], Class::BestEffort, Work::Always);
    sim.critical(4, REQUESTS);
    sim.run(S);
    sim.reset_counts();
    sim.run(10 * S);
    let starts = |group| {
        sim.controls.iter().filter(|(_, _, c)| c.group == GroupId(group) && c.op == ControlOp::Enable).count()
    };
    for group in 1..=3 {
        assert!((40..=80).contains(&starts(group)), "group {group} was enabled {} times", starts(group));
    }
    assert_eq!(overlaps(&sim, REQUESTS), 0);
}

#[test]
fn only_best_effort_group_stays_enabled_beside_a_latency_critical_process() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.critical(2, REQUESTS);
    sim.run(10 * S);
    assert_eq!(sim.count(|op| op == ControlOp::Disable), 0, "{:?}", sim.controls);
}

#[test]
fn idle_process_does_not_delay_another_process_of_its_client() {
    let mut sim = Simulation::new();
    sim.client(1, 50, 100, Class::BestEffort);
    sim.process(1, 1, &[1], Class::BestEffort, Work::Periodic { from: 0, period: 300 * MS, busy: 100 * MS });
    sim.process(2, 1, &[2], Class::BestEffort, Work::Always);
    sim.critical(3, REQUESTS);
    sim.run(4 * S);
    sim.reset_counts();
    sim.run(60 * S);
    let used: u64 = sim.gpu_time.values().sum();
    assert!(used > 56_500 * MS, "{} ms of 60 s were used", used / MS);
}

/// A latency-critical process with this work that is best-effort from 2 s on.
fn demoted(work: Work) -> Simulation {
    let mut sim = Simulation::new();
    sim.critical(1, work);
    sim.run(S);
    let client = crate::ClientId(1);
    sim.client(1, 50, 100, Class::BestEffort);
    sim.scheduler.set_class(client, Class::BestEffort, &mut sim.tokens, sim.now);
    sim.processes.get_mut(&ProcessId(1)).unwrap().class = Class::BestEffort;
    sim
}

#[test]
fn process_that_becomes_best_effort_is_not_polled() {
    let mut sim = demoted(Work::Never);
    sim.run(100 * MS);
    let wake = sim.scheduler.next_wakeup(sim.now).unwrap();
    assert!(wake > sim.now, "{wake} at {}", sim.now);
    assert_eq!(sim.gpu[&GroupId(1)], Setting::FREE);
}

#[test]
fn process_that_becomes_best_effort_returns_its_grant_when_idle() {
    let mut sim = demoted(Work::Periodic { from: 0, period: 100 * S, busy: 2 * S + 50 * MS });
    sim.run(40 * MS);
    assert_eq!(sim.tokens.holders().count(), 1);
    sim.run(100 * MS);
    assert_eq!(sim.tokens.holders().count(), 0);
}

#[test]
fn without_slices_groups_are_only_enabled_and_disabled() {
    let mut sim = Simulation::new();
    sim.set_policy(ChannelGroupPolicy { slices: false, ..ChannelGroupPolicy::default() });
    sim.best_effort(1, 30, Work::Always);
    sim.best_effort(2, 70, Work::Always);
    sim.run(S);
    sim.reset_counts();
    sim.run(60 * S);
    assert!((sim.shares()[0] - 30.0).abs() < 0.5, "{:?}", sim.shares());
    sim.critical(3, REQUESTS);
    sim.run(S);
    assert_eq!(sim.gpu.values().filter(|setting| setting.enabled).count(), 2, "{:?}", sim.gpu);
    for id in 1..=3 {
        sim.scheduler.remove_process(ProcessId(id), &mut sim.tokens, sim.now);
    }
    sim.run(S);
    assert!(sim.gpu.values().all(|setting| *setting == Setting::FREE), "{:?}", sim.gpu);
    assert_eq!(sim.count(|op| matches!(op, ControlOp::SetSlice(_))), 0);
    assert_eq!(sim.events.len(), 3, "all groups are released: {:?}", sim.events);
}
