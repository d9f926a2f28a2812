//! The manager does not run for a while, and hooks enable their groups meanwhile.

use super::simulation::{MS, S, Simulation, Work};
use crate::channel_groups::{ControlOp, GroupId, Setting};

/// Stops the manager for `pause`. The groups have the setting that hooks restore.
fn stop(sim: &mut Simulation, pause: u64) {
    while !sim.is_settled() {
        sim.run(MS);
    }
    let stopped_at = sim.now;
    sim.now += pause;
    sim.gpu.values_mut().for_each(|setting| *setting = Setting::FREE);
    sim.scheduler.rebuild(&mut sim.tokens, stopped_at, sim.now);
}

#[test]
fn groups_that_their_hooks_enabled_are_disabled_again() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.run(S + 10 * MS);
    stop(&mut sim, 4 * S);
    sim.run(20 * MS);
    let enabled = sim.gpu.values().filter(|setting| setting.enabled).count();
    assert_eq!(enabled, 1, "{:?}", sim.gpu);
    assert!(sim.count(|op| op == ControlOp::Disable) > 0);
}

#[test]
fn groups_beside_a_latency_critical_process_get_the_shortest_slice_again() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.critical(3, Work::Periodic { from: 0, period: 10 * MS, busy: MS });
    sim.run(S);
    stop(&mut sim, 4 * S);
    sim.run(100 * MS);
    let (first, second) = (sim.gpu[&GroupId(1)], sim.gpu[&GroupId(2)]);
    assert_eq!((first.slice_us, second.slice_us), (1, 1));
    assert_ne!(first.enabled, second.enabled);
    assert_eq!(sim.gpu[&GroupId(3)], Setting { enabled: true, slice_us: 1_000_000 });
}

#[test]
fn pause_is_charged_to_no_client() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Always);
    sim.best_effort(2, 50, Work::Always);
    sim.run(10 * S);
    stop(&mut sim, 4 * S);
    for second in 0..20 {
        sim.reset_counts();
        sim.run(S);
        let shares = sim.shares();
        // A quantum is 5 % of a second.
        assert!((shares[0] - 50.0).abs() <= 6.0, "{shares:?} in second {second} after the pause");
    }
}

#[test]
fn process_that_is_idle_after_the_pause_requests_nothing() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 50, Work::Periodic { from: 0, period: 100 * S, busy: 2 * S });
    sim.best_effort(2, 50, Work::Always);
    sim.run(S);
    stop(&mut sim, 4 * S);
    sim.reset_counts();
    sim.run(S);
    assert!(sim.shares()[1] > 95.0, "{:?}", sim.shares());
}
