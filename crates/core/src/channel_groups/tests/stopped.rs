//! Processes that the caller stops because they change their groups themselves.

use super::simulation::{MS, S, Simulation, Work};
use crate::channel_groups::GroupId;
use crate::ledger::Class;
use crate::{ClientId, ProcessId};

fn two_clients() -> Simulation {
    let mut sim = Simulation::new();
    sim.best_effort(1, 30, Work::Always);
    sim.best_effort(2, 70, Work::Always);
    sim.run(S);
    sim
}

fn stop(sim: &mut Simulation, id: u64) -> bool {
    sim.scheduler.stop_process(ProcessId(id), &mut sim.tokens, sim.now)
}

/// GPU time that a process uses in the next second, nanoseconds.
fn use_of(sim: &mut Simulation, id: u64) -> u64 {
    sim.reset_counts();
    sim.run(S);
    sim.gpu_time.get(&ProcessId(id)).copied().unwrap_or(0)
}

#[test]
fn stopped_process_leaves_the_gpu_to_the_others_until_it_is_resumed() {
    // At each point of the quanta: it holds a grant, waits, or its quantum ends.
    for later in 0..20 {
        let mut sim = two_clients();
        sim.run(later * 10 * MS);
        assert!(stop(&mut sim, 1));
        sim.run(5 * MS);
        assert_eq!(use_of(&mut sim, 1), 0, "after {} ms", later * 10);
        assert!(use_of(&mut sim, 2) > 990 * MS);
        sim.scheduler.resume_process(ProcessId(1));
        sim.run(S);
        sim.reset_counts();
        sim.run(10 * S);
        assert!((sim.shares()[0] - 30.0).abs() < 1.0, "{:?}", sim.shares());
    }
}

#[test]
fn groups_that_a_stopped_process_enables_are_disabled_by_the_next_stop() {
    let mut sim = two_clients();
    stop(&mut sim, 1);
    sim.run(5 * MS);
    sim.gpu.get_mut(&GroupId(1)).unwrap().enabled = true;
    assert!(use_of(&mut sim, 1) > 400 * MS, "nothing tells the scheduler");
    stop(&mut sim, 1);
    sim.run(5 * MS);
    assert_eq!(use_of(&mut sim, 1), 0);
}

#[test]
fn stopped_process_stays_disabled_beside_a_latency_critical_one() {
    let mut sim = two_clients();
    sim.critical(3, Work::Periodic { from: 0, period: 20 * MS, busy: MS });
    sim.run(S);
    stop(&mut sim, 1);
    sim.run(50 * MS);
    assert_eq!(use_of(&mut sim, 1), 0);
    assert!(use_of(&mut sim, 2) > 900 * MS);
}

#[test]
fn only_stopped_process_costs_no_controls_and_no_wakeups() {
    let mut sim = Simulation::new();
    sim.best_effort(1, 30, Work::Always);
    sim.run(S);
    stop(&mut sim, 1);
    sim.run(S);
    sim.reset_counts();
    sim.run(10 * S);
    assert_eq!((sim.controls.len(), sim.scheduler.next_wakeup(sim.now)), (0, None));
}

#[test]
fn latency_critical_process_is_not_stopped() {
    let mut sim = two_clients();
    sim.critical(3, Work::Always);
    sim.run(S);
    assert!(!stop(&mut sim, 3));
    assert!(use_of(&mut sim, 3) > 900 * MS);
}

#[test]
fn groups_that_a_stopped_process_announces_are_disabled() {
    let mut sim = two_clients();
    stop(&mut sim, 1);
    sim.process(1, 1, &[1, 11], Class::BestEffort, Work::Always);
    sim.run(5 * MS);
    assert_eq!(use_of(&mut sim, 1), 0);
}

#[test]
fn stopped_process_whose_client_becomes_latency_critical_runs() {
    let mut sim = two_clients();
    stop(&mut sim, 1);
    sim.client(1, 30, 100, Class::LatencyCritical);
    sim.scheduler.set_class(ClientId(1), Class::LatencyCritical, &mut sim.tokens, sim.now);
    sim.processes.get_mut(&ProcessId(1)).unwrap().class = Class::LatencyCritical;
    sim.run(5 * MS);
    assert!(use_of(&mut sim, 1) > 900 * MS);
}
