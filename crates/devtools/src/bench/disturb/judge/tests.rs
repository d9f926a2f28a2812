use std::time::Duration;

use super::super::disturbances::Observed;
use super::super::exported::Difference;
use super::super::host::HostLoad;
use super::super::scenario::{Client, Disturbance, Load, Scheduling};
use super::super::windows::Worst;
use super::*;

fn scenario(bar: Bar, clients: &[Client]) -> Scenario {
    let (scheduling, disturbance) = (Scheduling::Controls, Disturbance::Nothing);
    Scenario { name: "test".to_owned(), scheduling, clients: clients.to_vec(), disturbance, bar }
}

fn critical_and_best_effort(bar: Bar) -> Scenario {
    scenario(bar, &[Client::critical(0.5, Load::Busy), Client::busy("be", 0.5)])
}

/// A run of ten seconds without idle time in which the manager exports the truth.
fn measured(shares: &[f64], switching: f64) -> Measured {
    Measured {
        seconds: 10.0,
        shares: shares.to_vec(),
        shares_10_s: shares.to_vec(),
        switching,
        idle: 1.0 - shares.iter().sum::<f64>() - switching,
        entitled: vec![0.5; shares.len()],
        worst: None,
        by_second: Vec::new(),
        exported: Some(vec![Difference { rate_points: -0.2, share_points: 0.3 }]),
        exported_whole_run: None,
        observed: Observed::default(),
        latency_ms: None,
        host: HostLoad::default(),
    }
}

/// The names of the figures that missed their bars.
fn failed(scenario: &Scenario, measured: &Measured) -> Vec<&'static str> {
    figures(scenario, measured)
        .into_iter()
        .filter(|figure| !figure.passed)
        .map(|figure| figure.what)
        .collect()
}

#[test]
fn best_effort_beside_a_critical_client_is_to_get_the_share_or_what_is_left() {
    let scenario = critical_and_best_effort(Bar::Share(0.48));
    assert!(failed(&scenario, &measured(&[0.51, 0.48], 0.01)).is_empty());
    // Context switches take a tenth: 0.37 is what the critical client's request leaves, less the permitted idle time.
    assert!(failed(&scenario, &measured(&[0.53, 0.37], 0.1)).is_empty());
    assert_eq!(failed(&scenario, &measured(&[0.54, 0.36], 0.1)), ["share of the BE client, %"]);
    assert_eq!(failed(&scenario, &measured(&[0.99, 0.0], 0.01)), ["share of the BE client, %"]);
    assert_eq!(failed(&scenario, &measured(&[0.4, 0.5], 0.05)), ["idle, %"]);
}

#[test]
fn windows_may_be_off_by_a_quantum_and_not_by_more() {
    let scenario = critical_and_best_effort(Bar::EntitledEverySecond);
    let with = |off_points| {
        let worst = Worst { off_points, client: 0, share: 0.0, entitled: 0.5, at_s: 0.0 };
        Measured { worst: Some(worst), ..measured(&[0.5, 0.5], 0.0) }
    };
    assert!(failed(&scenario, &with(5.2)).is_empty());
    assert_eq!(failed(&scenario, &with(5.3)), ["worst second off by, points"]);
    let on_a_busy_host =
        Measured { host: HostLoad { latest_wakeup_ms: 10.0, ..HostLoad::default() }, ..with(6.1) };
    assert!(failed(&scenario, &on_a_busy_host).is_empty());
    let unmeasured = Measured { worst: None, ..with(0.0) };
    assert_eq!(failed(&scenario, &unmeasured), ["worst second off by, points"]);
}

#[test]
fn stopped_clients_may_cost_a_quantum_a_second() {
    let five = ["a", "b"].map(|name| Client::busy(name, 0.5));
    let scenario =
        Scenario { disturbance: Disturbance::OthersStopped, ..scenario(Bar::NothingLostToStopped, &five) };
    assert!(failed(&scenario, &measured(&[0.02, 0.96], 0.01)).is_empty());
    // What the stopped client's work takes is lost too.
    assert_eq!(failed(&scenario, &measured(&[0.06, 0.93], 0.01)), ["lost to stopped processes, ms a second"]);
}

#[test]
fn a_level_that_was_not_regained_and_figures_that_were_not_exported_fail() {
    let fails = Disturbance::ControlsFail(sluice_sim::fault::ControlFault::Refused, Duration::from_secs(1));
    let scenario = Scenario { disturbance: fails, ..critical_and_best_effort(Bar::LevelRegained) };
    let mut run = Measured { exported: None, ..measured(&[0.5, 0.5], 0.0) };
    assert_eq!(failed(&scenario, &run).len(), 3);
    run.observed.regained_s = Some(9.0);
    run.exported = Some(vec![Difference { rate_points: 1.1, share_points: -1.2 }]);
    assert_eq!(
        failed(&scenario, &run),
        ["exported GPU seconds off by, points", "sluice_share off by, points"]
    );
}

#[test]
fn a_request_may_take_a_tenth_longer_than_without_the_limit() {
    let scenario = critical_and_best_effort(Bar::RequestsNotDelayed);
    let mut run = Measured { latency_ms: Some(22.9), ..measured(&[0.1, 0.9], 0.0) };
    run.observed.latency_ms = Some(20.0);
    assert!(failed(&scenario, &run).is_empty());
    run.latency_ms = Some(23.1);
    assert_eq!(failed(&scenario, &run), ["requests delayed by, ms"]);
}
