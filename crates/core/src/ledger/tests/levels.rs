//! Levels: a better one is granted first, and takes nothing from the requests of the worse ones.

use super::simulation::{Habit, Simulation};
use super::*;

const BUSY: Option<Habit> = Some(Habit::Busy { overuse_ns: 0 });

fn of(class: Class, request: f64) -> (ClientSpec, Option<Habit>) {
    (ClientSpec { class, ..spec(request, 1.0) }, BUSY)
}

fn shares(clients: &[(ClientSpec, Option<Habit>)]) -> Vec<f64> {
    let mut gpu = Simulation::new(Policy::default(), clients);
    gpu.run_until(20 * S);
    gpu.had.iter().map(|had| had.share_between(0, 20 * S)).collect()
}

fn assert_near(got: &[f64], expected: &[f64]) {
    let near = got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() <= 0.015);
    assert!(near, "{got:?} instead of {expected:?}");
}

#[test]
fn unrequested_time_goes_to_the_best_level() {
    let clients = [of(Class::High, 0.2), of(Class::Normal, 0.2), of(Class::BestEffort, 0.2)];
    assert_near(&shares(&clients), &[0.6, 0.2, 0.2]);
}

#[test]
fn normal_goes_before_best_effort() {
    assert_near(&shares(&[of(Class::Normal, 0.0), of(Class::BestEffort, 0.3)]), &[0.7, 0.3]);
}

#[test]
fn time_of_an_idle_better_client_goes_to_the_next_level() {
    let mut clients = [of(Class::High, 0.5), of(Class::Normal, 0.1), of(Class::BestEffort, 0.1)];
    clients[0].1 = None;
    assert_near(&shares(&clients), &[0.0, 0.9, 0.1]);
}

#[test]
fn client_of_the_worst_level_without_a_request_still_progresses() {
    let got = shares(&[of(Class::High, 0.5), of(Class::BestEffort, 0.0)]);
    assert!((0.005..=0.02).contains(&got[1]), "{got:?}");
}
