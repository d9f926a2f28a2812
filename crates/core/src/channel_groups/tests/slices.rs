//! Slices beside latency-critical processes that report that they are host-bound.

use super::simulation::{MS, S, Simulation, Work};
use crate::ProcessId;
use crate::channel_groups::{ControlOp, DEFAULT_SLICE_US, GroupId};
use crate::ledger::Class;

const BE: [u64; 2] = [1, 2];
const LC: u64 = 3;
const OTHER_LC: u64 = 4;

/// Two best-effort clients beside a latency-critical one that always has work.
fn simulation() -> Simulation {
    let mut sim = Simulation::new();
    sim.best_effort(BE[0], 30, Work::Always);
    sim.best_effort(BE[1], 70, Work::Always);
    sim.critical(LC, Work::Periodic { from: 0, period: 4 * MS, busy: 3 * MS });
    sim.run(S);
    sim
}

fn set_host_bound(sim: &mut Simulation, id: u64, host_bound: bool) {
    let id = ProcessId(id);
    let _ = if host_bound { sim.host_bound.insert(id) } else { sim.host_bound.remove(&id) };
    // The manager reads pages at its next round.
    sim.run(100 * MS);
}

/// The slices of the best-effort groups and of the first latency-critical one.
fn slices(sim: &Simulation) -> [u64; 3] {
    [BE[0], BE[1], LC].map(|group| sim.gpu[&GroupId(group)].slice_us)
}

#[test]
fn all_groups_have_default_slices_while_the_only_critical_process_is_host_bound() {
    let mut sim = simulation();
    assert_eq!(slices(&sim), [1, 1, 1_000_000]);
    set_host_bound(&mut sim, LC, true);
    assert!(sim.scheduler.default_slices());
    assert_eq!(slices(&sim), [DEFAULT_SLICE_US; 3]);
    set_host_bound(&mut sim, LC, false);
    assert!(!sim.scheduler.default_slices());
    assert_eq!(slices(&sim), [1, 1, 1_000_000]);
}

#[test]
fn one_best_effort_group_is_enabled_at_a_time_with_default_slices_too() {
    let mut sim = simulation();
    set_host_bound(&mut sim, LC, true);
    sim.reset_counts();
    for _ in 0..1_000 {
        sim.run(10 * MS);
        let enabled = BE.iter().filter(|group| sim.gpu[&GroupId(**group)].enabled);
        assert!(enabled.count() <= 1 || !sim.is_settled());
    }
    let shares = sim.shares();
    assert!((shares[0] - 30.0).abs() < 2.0, "{shares:?}");
}

#[test]
fn short_slices_stay_as_long_as_one_critical_process_with_work_wants_them() {
    let mut sim = simulation();
    sim.critical(OTHER_LC, Work::Periodic { from: 0, period: 10 * MS, busy: MS });
    set_host_bound(&mut sim, LC, true);
    assert_eq!(slices(&sim), [1, 1, 5_000]);
    set_host_bound(&mut sim, OTHER_LC, true);
    assert_eq!(slices(&sim), [DEFAULT_SLICE_US; 3]);
    set_host_bound(&mut sim, LC, false);
    assert_eq!(slices(&sim), [1, 1, 5_000]);
}

#[test]
fn critical_process_that_never_had_work_does_not_count() {
    let mut sim = simulation();
    sim.critical(OTHER_LC, Work::Never);
    set_host_bound(&mut sim, LC, true);
    assert_eq!(slices(&sim), [DEFAULT_SLICE_US; 3]);
}

#[test]
fn best_effort_process_that_reports_host_bound_changes_nothing() {
    let mut sim = simulation();
    set_host_bound(&mut sim, BE[0], true);
    assert_eq!(slices(&sim), [1, 1, 1_000_000]);
    // Without a latency-critical process groups have default slices anyway.
    set_host_bound(&mut sim, LC, true);
    sim.dies(LC);
    sim.run(100 * MS);
    assert!(!sim.scheduler.default_slices());
}

#[test]
fn default_slices_begin_every_ten_seconds_in_the_long_run_however_often_the_wish_changes() {
    for interval in [20 * MS, S] {
        let mut sim = simulation();
        sim.reset_counts();
        let mut begins = 0;
        for _ in 0..60 * S / interval {
            let before = sim.scheduler.default_slices();
            let _ = sim.host_bound.take(&ProcessId(LC)).is_some() || sim.host_bound.insert(ProcessId(LC));
            sim.run(interval);
            begins += u64::from(!before && sim.scheduler.default_slices());
        }
        assert!((5..=10).contains(&begins), "{begins} in 60 s if the wish changes each {} ms", interval / MS);
        let slice_controls = sim.count(|op| matches!(op, ControlOp::SetSlice(_)));
        assert!(slice_controls <= 10 * 6, "{slice_controls}");
    }
}

#[test]
fn default_slices_that_had_to_wait_begin_without_another_event() {
    let mut sim = Simulation::new();
    sim.critical(LC, Work::Always);
    sim.client(1, 30, 100, Class::BestEffort);
    sim.process(1, 1, &[1], Class::BestEffort, Work::Never);
    sim.run(S);
    for _ in 0..8 {
        set_host_bound(&mut sim, LC, true);
        set_host_bound(&mut sim, LC, false);
    }
    sim.host_bound.insert(ProcessId(LC));
    sim.run(50 * MS);
    assert!(!sim.scheduler.default_slices(), "too often");
    assert!(sim.scheduler.next_wakeup(sim.now).is_some());
    sim.run(10 * S);
    assert!(sim.scheduler.default_slices());
    assert_eq!(sim.gpu[&GroupId(1)].slice_us, DEFAULT_SLICE_US);
}
