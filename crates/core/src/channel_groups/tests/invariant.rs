//! For every order of events, at most one enabled group has a tiny slice on the simulated GPU.

use super::simulation::{MS, S, Simulation, Work};
use crate::channel_groups::{ControlOutcome, GroupId, Setting};
use crate::ledger::Class;
use crate::{ClientId, ProcessId};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum SimEvent {
    Time(u64),
    /// A process with this many groups attaches.
    Attaches {
        client: u64,
        groups: u64,
        work: u8,
    },
    Dies(usize),
    Leaves(usize),
    Disconnects(usize),
    /// A process announces only this many of its groups.
    Announces(usize, usize),
    /// A process becomes host-bound, or is so no longer.
    TurnsHostBound(usize),
    /// So many controls from the next one on end so.
    NextControls(ControlOutcome, u64),
}

fn anything() -> impl Strategy<Value = SimEvent> {
    let outcome = prop_oneof![Just(ControlOutcome::Failed), Just(ControlOutcome::Gone)];
    prop_oneof![
        6 => (1..120u64).prop_map(SimEvent::Time),
        1 => (1_000..9_000u64).prop_map(SimEvent::Time),
        4 => (1..6u64, 1..3u64, 0..4u8)
            .prop_map(|(client, groups, work)| SimEvent::Attaches { client, groups, work }),
        1 => (0..8usize).prop_map(SimEvent::Dies),
        1 => (0..8usize).prop_map(SimEvent::Leaves),
        1 => (0..8usize).prop_map(SimEvent::Disconnects),
        2 => (0..8usize, 0..3usize).prop_map(|(index, left)| SimEvent::Announces(index, left)),
        3 => (0..8usize).prop_map(SimEvent::TurnsHostBound),
        2 => (outcome, 1..30u64).prop_map(|(outcome, count)| SimEvent::NextControls(outcome, count)),
    ]
}

const fn work(number: u8) -> Work {
    match number {
        0 => Work::Never,
        1 => Work::Periodic { from: 0, period: 10 * MS, busy: MS },
        2 => Work::Periodic { from: 0, period: 90 * MS, busy: 40 * MS },
        _ => Work::Always,
    }
}

fn simulate(events: &[SimEvent], effective: bool) -> Simulation {
    let mut sim = Simulation::new();
    sim.failures_take_effect = effective;
    for client in 1..=4 {
        sim.client(client, 25, if client == 4 { 50 } else { 100 }, Class::BestEffort);
    }
    sim.client(5, 0, 100, Class::LatencyCritical);
    let mut last = 0;
    for event in events {
        let nth = |sim: &Simulation, index: usize| sim.processes.keys().nth(index).map(|id| id.0);
        match *event {
            SimEvent::Time(ms) => sim.run(ms * MS),
            SimEvent::Attaches { client, groups, work: number } => {
                let class = if client == 5 { Class::LatencyCritical } else { Class::BestEffort };
                last += 10;
                let groups: Vec<u64> = (last..last + groups).collect();
                sim.process(last, client, &groups, class, work(number));
            }
            SimEvent::Dies(index) => {
                if let Some(id) = nth(&sim, index) {
                    sim.dies(id);
                }
            }
            SimEvent::Leaves(index) => {
                if let Some(id) = nth(&sim, index) {
                    sim.scheduler.remove_process(ProcessId(id), &mut sim.tokens, sim.now);
                    sim.tokens.process_gone(ProcessId(id), sim.now);
                    sim.processes.remove(&ProcessId(id));
                }
            }
            SimEvent::Disconnects(index) => {
                if let Some(id) = nth(&sim, index) {
                    sim.scheduler.disconnect(ProcessId(id), &mut sim.tokens, sim.now);
                    sim.tokens.process_gone(ProcessId(id), sim.now);
                    sim.processes.remove(&ProcessId(id));
                }
            }
            SimEvent::Announces(index, left) => {
                if let Some(id) = nth(&sim, index) {
                    sim.announces_only(id, left);
                }
            }
            SimEvent::TurnsHostBound(index) => {
                if let Some(id) = nth(&sim, index).map(ProcessId) {
                    let _ = sim.host_bound.take(&id).is_some() || sim.host_bound.insert(id);
                }
            }
            SimEvent::NextControls(outcome, count) => {
                let numbers = sim.begun..sim.begun + count;
                sim.fails = Box::new(
                    move |now, _| if numbers.contains(&now) { outcome } else { ControlOutcome::Done },
                );
            }
        }
    }
    sim
}

/// The driver has recovered: lets the time pass in which every group is controlled again.
fn recover(sim: &mut Simulation) {
    sim.fails = Box::new(|_, _| ControlOutcome::Done);
    sim.run(10 * S);
}

/// Releases every process, and returns the groups that are not free 500 ms later.
fn not_free_after_release(sim: &mut Simulation) -> Vec<(GroupId, Setting)> {
    for id in sim.processes.keys().copied().collect::<Vec<_>>() {
        sim.scheduler.remove_process(id, &mut sim.tokens, sim.now);
        sim.tokens.process_gone(id, sim.now);
    }
    sim.processes.clear();
    sim.run(500 * MS);
    assert!(sim.is_settled());
    let groups = sim.gpu.iter().map(|(group, setting)| (*group, *setting));
    groups.filter(|(_, setting)| *setting != Setting::FREE).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// The simulated GPU checks the invariant after each control. A failed control may have taken effect. 10 s after the
    /// driver has recovered, every process with groups is hardware-scheduled, and no group is left that cannot be released.
    #[test]
    fn at_most_one_enabled_group_is_tiny_and_every_process_is_controlled_10_s_after_recovery(
        events in proptest::collection::vec(anything(), 1..40),
        effective: bool,
    ) {
        let mut sim = simulate(&events, effective);
        recover(&mut sim);
        for (id, process) in &sim.processes {
            let has_groups = process.groups.iter().any(|group| sim.scheduler.owns(*id, *group));
            prop_assert_eq!(sim.scheduler.has_controlled_groups(*id), has_groups, "{:?}", id);
        }
        let left = not_free_after_release(&mut sim);
        prop_assert!(left.is_empty(), "{left:?}");
        let client = ClientId(1);
        prop_assert!(sim.tokens.usage(client, sim.now).is_some());
    }
}
