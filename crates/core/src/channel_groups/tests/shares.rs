//! GPU time that quanta give to each client.

use super::simulation::{MS, S, Simulation, Work};
use crate::ClientId;
use crate::channel_groups::{ControlOp, GroupId, Setting};
use crate::ledger::Class;

/// Whether every share is within 0.3 percentage points of the request.
fn near(shares: &[f64], expected: &[f64]) -> bool {
    shares.len() == expected.len() && shares.iter().zip(expected).all(|(got, want)| (got - want).abs() <= 0.3)
}

#[test]
fn two_trainings_get_30_and_70_percent_despite_the_cost_of_hand_offs() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 30, Work::Always);
    sim.best_effort(2, 70, Work::Always);
    sim.run(S);
    sim.reset_counts();
    sim.run(60 * S);
    assert!(near(&sim.shares(), &[30.0, 70.0]), "{:?}", sim.shares());
    let used: u64 = sim.gpu_time.values().sum();
    assert!(used > 59_500 * MS, "{} ms of 60 s were used", used / MS);
    let stops = sim.count(|op| op == ControlOp::Disable);
    assert!((500..=1000).contains(&stops), "{stops} hand-offs in a minute");
    for (id, expected) in [(1, 0.3), (2, 0.7)] {
        let share = sim.tokens.usage(ClientId(id), sim.now).unwrap().charged_ns as f64 / sim.now as f64;
        assert!((share - expected).abs() < 0.02, "charged {share}");
    }
}

#[test]
fn four_trainings_get_10_20_30_and_40_percent() {
    let mut sim = Simulation::new();
    for id in 1..=4 {
        sim.best_effort(id, u32::try_from(id).unwrap() * 10, Work::Always);
    }
    sim.run(S);
    sim.reset_counts();
    sim.run(60 * S);
    assert!(near(&sim.shares(), &[10.0, 20.0, 30.0, 40.0]), "{:?}", sim.shares());
    let used: u64 = sim.gpu_time.values().sum();
    assert!(used > 59_000 * MS, "{} ms of 60 s were used", used / MS);
}

#[test]
fn time_that_an_idle_client_leaves_goes_to_the_others() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Periodic { from: 0, period: S, busy: S / 2 });
    sim.best_effort(2, 25, Work::Always);
    sim.best_effort(3, 25, Work::Always);
    sim.run(2 * S);
    sim.reset_counts();
    sim.run(60 * S);
    let used: u64 = sim.gpu_time.values().sum();
    assert!(used > 59_000 * MS, "{} ms of 60 s were used", used / MS);
    let shares = sim.shares();
    assert!((shares[1] - shares[2]).abs() < 1.0, "{shares:?}");
    // It gets half of the GPU while it has work, which is half of the time. The first 100 ms of a pause count as work.
    assert!((25.0..31.0).contains(&shares[0]), "{shares:?}");
}

#[test]
fn groups_of_a_single_training_are_never_disabled() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 30, Work::Always);
    sim.run(20 * S);
    assert_eq!(sim.gpu_time[&crate::ProcessId(1)], 20 * S);
    // One control for the slice and one to enable: the setting was unknown before.
    assert_eq!(sim.controls.len(), 2, "{:?}", sim.controls);
}

#[test]
fn an_idle_process_beside_a_training_costs_next_to_nothing() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 30, Work::Always);
    sim.best_effort(2, 70, Work::Never);
    sim.run(60 * S);
    assert!(sim.gpu_time[&crate::ProcessId(1)] > 59_900 * MS, "{:?}", sim.gpu_time);
    assert!(sim.controls.len() < 60, "{}", sim.controls.len());
}

/// GPU time in thousandths of a process that always has work but reports idle, beside a training.
fn time_of_false_idle(limit: u32, honest: bool, critical: bool) -> u64 {
    let mut sim = Simulation::new();
    sim.client(1, 10, limit, Class::BestEffort);
    sim.process(1, 1, &[1], Class::BestEffort, Work::Always);
    sim.false_idle.insert(crate::ProcessId(1));
    if honest {
        sim.best_effort(2, 70, Work::Always);
    }
    if critical {
        sim.critical(3, Work::Never);
    }
    sim.run(S);
    sim.reset_counts();
    sim.run(20 * S);
    sim.gpu_time.get(&crate::ProcessId(1)).copied().unwrap_or(0) / (20 * MS)
}

#[test]
fn process_that_falsely_reports_idle_runs_neither_beside_a_holder_nor_beyond_its_limit() {
    for critical in [false, true] {
        assert!(time_of_false_idle(100, true, critical) < 20, "beside a holder");
        assert!(time_of_false_idle(40, false, critical) < 20, "beyond its limit");
        assert!(time_of_false_idle(100, false, critical) > 990, "alone it delays no other client");
    }
}

#[test]
fn limit_holds_for_a_process_that_is_alone() {
    let mut sim = Simulation::new();
    sim.client(1, 20, 40, Class::BestEffort);
    sim.process(1, 1, &[1], Class::BestEffort, Work::Always);
    sim.run(S);
    sim.reset_counts();
    sim.run(60 * S);
    let share = sim.gpu_time[&crate::ProcessId(1)] as f64 / (60 * S) as f64;
    assert!((share - 0.4).abs() < 0.003, "{share}");
}

#[test]
fn second_training_is_served_within_two_quanta_and_the_first_continues_alone_afterwards() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Periodic { from: 5 * S, period: 100 * S, busy: 2 * S });
    sim.run(4 * S);
    assert_eq!(sim.gpu_time.get(&crate::ProcessId(2)), None);
    sim.run(100 * MS);
    sim.run(2 * S);
    let second = sim.gpu_time[&crate::ProcessId(2)];
    assert!(second > 900 * MS, "{} ms", second / MS);
    sim.reset_counts();
    sim.run(S);
    assert!(sim.gpu_time[&crate::ProcessId(1)] > 990 * MS, "{:?}", sim.gpu_time);
    assert_eq!(
        sim.gpu[&GroupId(2)],
        Setting { enabled: false, ..Setting::FREE },
        "another client holds the GPU"
    );
}

#[test]
fn disabled_process_that_reports_idle_is_probed_ever_less_often() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 30, Work::Always);
    sim.best_effort(2, 30, Work::Always);
    sim.best_effort(3, 30, Work::Never);
    sim.run(S);
    sim.controls.clear();
    sim.run(S);
    let starts = sim.controls.iter().filter(|(_, _, c)| c.group == GroupId(3) && c.op == ControlOp::Enable);
    assert!((1..=3).contains(&starts.count()), "{:?}", sim.controls);
    sim.reset_counts();
    sim.run(60 * S);
    let starts = sim.controls.iter().filter(|(_, _, c)| c.group == GroupId(3) && c.op == ControlOp::Enable);
    assert!(starts.count() < 20, "the pauses double");
}
