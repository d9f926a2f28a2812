//! The scenarios: each "It must show" line with its cases.

use std::time::Duration;

use sluice_sim::fault::ControlFault;

use super::scenario::{Bar, Client, Disturbance, Load, Scenario, Scheduling};

const BOTH: [Scheduling; 2] = [Scheduling::Controls, Scheduling::Token];
/// Requests whose sum is 1, 0.6 and 0.95.
const PAIRS: [(f64, f64); 3] = [(0.5, 0.5), (0.3, 0.3), (0.5, 0.45)];
/// Requests of 52 % of the GPU's time.
const HALF_BUSY: Load = Load::Requests { kernel: 5.2, period: 10.0 };
/// Requests of a tenth of the GPU's time, each as long as several quanta of other services.
const SPARSE: Load = Load::Requests { kernel: 20.0, period: 200.0 };

/// More than the 2 s that a control is awaited.
const SLOW_NS: u64 = 2_500_000_000;

/// All scenarios, in the order of the issue.
pub(super) fn all() -> Vec<Scenario> {
    [shares_after_disturbances(), beside_critical(), stopped_clients(), failures(), without_requests()]
        .concat()
}

fn scenario(
    name: &str,
    scheduling: Scheduling,
    clients: &[Client],
    disturbance: Disturbance,
    bar: Bar,
) -> Scenario {
    let name = format!("{name}-{}", scheduling.name());
    Scenario { name, scheduling, clients: clients.to_vec(), disturbance, bar }
}

/// S1.
fn shares_after_disturbances() -> Vec<Scenario> {
    let disturbances = [
        ("manager-stopped", Disturbance::ManagerStopped(Duration::from_secs(4))),
        ("long-kernel", Disturbance::LongKernel(Duration::from_secs(3))),
        ("process-stopped", Disturbance::ProcessStopped(Duration::from_millis(1500))),
        ("class-changed", Disturbance::CriticalFor(Duration::from_secs(3))),
        ("restarted", Disturbance::Restarted(Duration::from_secs(1))),
        ("reloaded", Disturbance::Reloaded),
    ];
    let mut all = Vec::new();
    for scheduling in BOTH {
        for (a, b) in PAIRS {
            for (name, disturbance) in disturbances {
                let clients = [Client::busy("a", a), Client::busy("b", b)];
                let name = format!("s1-{name}-{a}-{b}");
                all.push(scenario(&name, scheduling, &clients, disturbance, Bar::EntitledEverySecond));
            }
        }
    }
    all
}

/// S2 and S3.
fn beside_critical() -> Vec<Scenario> {
    let (half, capped) = (Client::busy("be", 0.5), Client::busy("be", 0.5).limited(0.5));
    let critical = |load| Client::critical(0.5, load);
    let limited = Client::critical(0.3, Load::Busy).limited(0.3);
    let sparse = Client::critical(0.3, SPARSE);
    let limit = Disturbance::Limited(Duration::from_secs(4), 0.3);
    let of = |scheduling| {
        let steady =
            |name, clients: &[Client], bar| scenario(name, scheduling, clients, Disturbance::Nothing, bar);
        [
            steady("s2-beside-half-busy-lc", &[critical(HALF_BUSY), capped], Bar::Share(0.45)),
            steady("s2-beside-saturating-lc", &[critical(Load::Busy), capped], Bar::Share(0.45)),
            steady("s3-lc-limit", &[limited, half], Bar::ShareAtMost(0.31)),
            steady("s3-lc-limit-alone", &[limited], Bar::ShareAtMost(0.31)),
            scenario("s3-lone-requests", scheduling, &[sparse, half], limit, Bar::RequestsNotDelayed),
            steady("s3-be-beside-saturating-lc", &[critical(Load::Busy), half], Bar::Share(0.48)),
        ]
    };
    BOTH.into_iter().flat_map(of).collect()
}

/// S4.
fn stopped_clients() -> Vec<Scenario> {
    let five = ["a", "b", "c", "d", "e"].map(|name| Client::busy(name, 0.2));
    let critical = Client::critical(0.2, Load::Requests { kernel: 1.0, period: 20.0 });
    let beside = [critical, Client::busy("a", 0.4), Client::busy("b", 0.4)];
    let bar = Bar::NothingLostToStopped;
    let lc = |scheduling| {
        scenario("s4-lc-stopped-in-request", scheduling, &beside, Disturbance::StoppedInRequest, bar)
    };
    BOTH.into_iter()
        .map(|scheduling| {
            scenario("s4-four-of-five-stopped", scheduling, &five, Disturbance::OthersStopped, bar)
        })
        .chain([lc(Scheduling::Controls)])
        .collect()
}

/// S5 and S6.
fn failures() -> Vec<Scenario> {
    let pair = [Client::busy("a", 0.4), Client::busy("b", 0.4)];
    let starting = Client { load: Load::Idle, ..Client::busy("new", 0.2) };
    let three = [pair[0], pair[1], starting];
    let stopped = Disturbance::AllocationsWhileManagerStopped(Duration::from_secs(3));
    let slow = ControlFault::Slow { ns: SLOW_NS };
    let failed = |name, fault, seconds| {
        let fails = Disturbance::ControlsFail(fault, Duration::from_secs(seconds));
        scenario(name, Scheduling::Controls, &pair, fails, Bar::LevelRegained)
    };
    BOTH.into_iter()
        .map(|scheduling| scenario("s5-manager-stopped", scheduling, &three, stopped, Bar::Live))
        .chain([failed("s6-controls-refused", ControlFault::Refused, 3), failed("s6-controls-slow", slow, 6)])
        .collect()
}

/// S7.
fn without_requests() -> Vec<Scenario> {
    let clients = [Client::busy("a", 0.9), Client::busy("b", 0.0), Client::busy("c", 0.0)];
    BOTH.map(|scheduling| {
        scenario("s7-without-request", scheduling, &clients, Disturbance::Nothing, Bar::Entitled)
    })
    .to_vec()
}

#[cfg(test)]
mod tests;
