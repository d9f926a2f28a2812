//! A client with short bursts is granted beside the holder, and for no more than its share.

use super::simulation::{Habit, Simulation};
use super::*;

const BUSY: Option<Habit> = Some(Habit::Busy { overuse_ns: 0 });

/// A millisecond of the GPU in each 21.
const SHORT: Option<Habit> = Some(Habit::Pausing { use_ns: MS, pause_ns: 20 * MS });

fn beside(habit: Option<Habit>) -> Simulation {
    Simulation::new(Policy::default(), &[(spec(0.5, 1.0), habit), (spec(0.5, 1.0), BUSY)])
}

#[test]
fn client_with_short_bursts_does_not_wait_for_the_holder() {
    let mut gpu = beside(SHORT);
    gpu.run_until(S);
    gpu.had[0].longest_wait = 0;
    gpu.run_until(11 * S);
    assert_eq!(gpu.had[0].longest_wait, 0);
    let bursts = gpu.had[0].runs.iter().filter(|(since, ..)| *since >= S).count();
    assert!((475..=477).contains(&bursts), "{bursts} bursts in 10 s");
    let holder = gpu.had[1].share_between(S, 11 * S);
    assert!(holder >= 0.95, "{holder} of the GPU for the other client");
}

#[test]
fn client_that_uses_a_short_grant_for_more_is_granted_in_its_turn() {
    let mut gpu = beside(SHORT);
    gpu.run_until(S);
    gpu.habit(0, BUSY);
    gpu.run_until(S + 100 * MS);
    let before = gpu.had[0].runs.len();
    gpu.run_until(11 * S);
    let later = &gpu.had[0].runs[before..];
    assert!(later.iter().all(|(since, to, used)| to - since == *used), "it runs alone from then on");
    let share = gpu.had[0].share_between(S + 100 * MS, 11 * S);
    assert!((share - 0.5).abs() <= 0.02, "{share}");
}

/// It keeps its bursts just within the time of a short grant, and hardly pauses.
#[test]
fn client_with_many_short_bursts_has_no_more_than_its_share() {
    for request in [0.1, 0.3, 0.5] {
        let greedy = Some(Habit::Pausing { use_ns: 4_900_000, pause_ns: 10_000 });
        let clients = [(spec(request, 1.0), greedy), (spec(1.0 - request, 1.0), BUSY)];
        let mut gpu = Simulation::new(Policy::default(), &clients);
        gpu.run_until(20 * S);
        let (greedy, other) = (gpu.had[0].share_between(0, 20 * S), gpu.had[1].share_between(0, 20 * S));
        assert!(greedy <= request + 0.02, "{greedy} of {request}");
        assert!(other >= 1.0 - request - 0.02, "{other} beside {request}");
    }
}

#[test]
fn short_bursts_wait_for_a_hardware_scheduled_holder() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ledger.returned(ProcessId(0), MS, MS, 0).unwrap();
    ledger.set_kind(ProcessId(1), ReturnKind::HardwareScheduled, MS).unwrap();
    ask(&mut ledger, 1, 10 * MS);
    assert_eq!(granted(&ledger.advance(10 * MS)).len(), 1);
    ask(&mut ledger, 0, 12 * MS);
    assert_eq!(granted(&ledger.advance(12 * MS)), []);
}
