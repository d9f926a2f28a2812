//! GPU time that each client gets.

use super::simulation::{Habit, Simulation};
use super::*;

const BUSY: Option<Habit> = Some(Habit::Busy { overuse_ns: 0 });

fn near(got: f64, expected: f64) {
    assert!((got - expected).abs() <= 0.01, "{got} instead of {expected}");
}

#[test]
fn two_busy_clients_get_their_requests() {
    let mut gpu = Simulation::new(Policy::default(), &[(spec(0.3, 1.0), BUSY), (spec(0.7, 1.0), BUSY)]);
    gpu.run_until(20 * S);
    near(gpu.had[0].share_between(0, 20 * S), 0.3);
    near(gpu.had[1].share_between(0, 20 * S), 0.7);
}

#[test]
fn unrequested_time_is_shared_in_proportion_to_the_requests() {
    let clients = [(spec(0.2, 1.0), BUSY), (spec(0.3, 1.0), BUSY), (spec(0.1, 1.0), BUSY)];
    let mut gpu = Simulation::new(Policy::default(), &clients);
    gpu.run_until(20 * S);
    for (had, expected) in gpu.had.iter().zip([1.0 / 3.0, 0.5, 1.0 / 6.0]) {
        near(had.share_between(0, 20 * S), expected);
    }
}

#[test]
fn share_of_an_idle_client_goes_to_the_others_and_returns_at_once() {
    let mut gpu = Simulation::new(Policy::default(), &[(spec(0.3, 1.0), BUSY), (spec(0.3, 1.0), None)]);
    gpu.run_until(15 * S);
    near(gpu.had[0].share_between(0, 15 * S), 1.0);
    gpu.habit(1, BUSY);
    gpu.run_until(17 * S);
    // Its idle time earns nothing, and the other's use of free time costs nothing.
    near(gpu.had[0].share_between(15 * S, 17 * S), 0.5);
    near(gpu.had[1].share_between(15 * S, 17 * S), 0.5);
}

#[test]
fn client_that_was_idle_for_long_does_not_starve_the_others() {
    let clients = [(spec(0.5, 1.0), BUSY), (spec(0.5, 1.0), BUSY), (spec(0.0, 1.0), None)];
    let mut gpu = Simulation::new(Policy::default(), &clients);
    gpu.run_until(3 * S);
    gpu.habit(1, None);
    gpu.run_until(30 * S);
    gpu.habit(1, BUSY);
    gpu.run_until(31 * S);
    near(gpu.had[0].share_between(30 * S, 31 * S), 0.5);
    assert!(gpu.had[0].longest_stall() <= 110 * MS, "{}", gpu.had[0].longest_stall());
}

#[test]
fn client_with_short_pauses_gets_its_request() {
    // It uses 30 ms and computes 15 ms on the CPU. The other one uses every grant, 50 ms at a time.
    let pausing = Some(Habit::Pausing { use_ns: 30 * MS, pause_ns: 15 * MS });
    let mut gpu = Simulation::new(Policy::default(), &[(spec(0.3, 1.0), pausing), (spec(0.3, 1.0), BUSY)]);
    gpu.run_until(20 * S);
    let share = gpu.had[0].share_between(0, 20 * S);
    assert!(share >= 0.3, "{share}");
}

#[test]
fn clients_without_a_request_share_only_the_unrequested_time() {
    let clients = [(spec(0.6, 0.6), BUSY), (spec(0.0, 1.0), BUSY), (spec(0.0, 1.0), BUSY)];
    let mut gpu = Simulation::new(Policy::default(), &clients);
    gpu.run_until(20 * S);
    near(gpu.had[0].share_between(0, 20 * S), 0.6);
    near(gpu.had[1].share_between(0, 20 * S), 0.2);
    near(gpu.had[2].share_between(0, 20 * S), 0.2);

    let clients = [(spec(1.0, 1.0), BUSY), (spec(0.0, 1.0), BUSY)];
    let mut gpu = Simulation::new(Policy::default(), &clients);
    gpu.run_until(20 * S);
    assert!(gpu.had[1].share_between(0, 20 * S) <= 0.01);
}

#[test]
fn client_that_holds_without_using_does_not_starve_the_others() {
    let hoarding = Some(Habit::Hoarding { one_in: 20 });
    let mut gpu = Simulation::new(Policy::default(), &[(spec(0.8, 1.0), hoarding), (spec(0.2, 1.0), BUSY)]);
    gpu.run_until(20 * S);
    let share = gpu.had[1].share_between(5 * S, 20 * S);
    assert!(share >= 0.19, "{share}");
}

#[test]
fn charge_is_the_time_used_not_the_time_held() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ledger.returned(ProcessId(0), 50 * MS, 10 * MS, 0).unwrap();
    assert_eq!(ended(&ledger.advance(50 * MS)), [(0, 50 * MS, 10 * MS)]);
    let usage = ledger.usage(ClientId(0), 50 * MS).unwrap();
    assert_eq!(usage.charged_ns, 10 * MS);
}

#[test]
fn charge_is_at_most_the_duration_of_the_grant() {
    let mut ledger = pair();
    ask(&mut ledger, 0, 0);
    ledger.advance(0);
    ledger.returned(ProcessId(0), 60 * MS, 9 * S, 7 * S).unwrap();
    assert_eq!(ended(&ledger.advance(60 * MS)), [(0, 60 * MS, 60 * MS)]);
}

/// A ledger of which client 1 has worked from 0 to 10 ms.
fn worked_once() -> TokenLedger {
    let mut ledger = pair();
    ask(&mut ledger, 1, 0);
    ledger.advance(0);
    ledger.returned(ProcessId(1), 10 * MS, 10 * MS, 0).unwrap();
    ledger.advance(10 * MS);
    ledger
}

fn is_in_demand(ledger: &TokenLedger) -> bool {
    ledger.clients[&ClientId(1)].in_demand
}

#[test]
fn pause_is_short_by_the_settings_that_are_in_force() {
    let mut ledger = worked_once();
    ledger.set_policy(Policy { idle_credit_ns: 30 * MS, ..Policy::default() });
    ledger.advance(39 * MS);
    assert!(is_in_demand(&ledger));
    ledger.advance(40 * MS);
    assert!(!is_in_demand(&ledger));
}

#[test]
fn client_that_works_again_after_a_change_of_settings_counts_in_the_demand() {
    let mut ledger = worked_once();
    ledger.set_policy(Policy { idle_credit_ns: 300 * MS, ..Policy::default() });
    ask(&mut ledger, 1, 50 * MS);
    ledger.advance(50 * MS);
    // The short pause of the earlier settings would have ended by now.
    ledger.advance(90 * MS);
    ask(&mut ledger, 0, 115 * MS);
    ledger.advance(115 * MS);
    assert!(is_in_demand(&ledger));
}
