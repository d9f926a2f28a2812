//! Short requests at random times beside a training: the tables of docs/design/slo.md, its bars, and steps of the load.
#![allow(clippy::unwrap_used, reason = "tests")]

use sluice_policy_sim::scenario::{Arrivals, HostTimes};
use sluice_policy_sim::{Finished, PolicyName, Report, Scenario, scenario, simulate};

const US: u64 = 1_000;
const S: u64 = 1_000_000_000;
const SLO_NS: u64 = 600 * US;

/// Requests of 0.23 ms, 300 a second, whose first call comes 50 µs before the launch.
fn copies_first() -> Scenario {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/simulation/random-requests.yaml");
    scenario::parse(&std::fs::read_to_string(path).unwrap(), &|_| unreachable!()).unwrap()
}

/// The same with a launch as the first call.
fn launches_first() -> Scenario {
    let mut scenario = copies_first();
    let service = &mut scenario.workloads[0].service;
    (service.burst_ns, service.host.prepare_ns) = (160 * US, 0);
    scenario
}

/// The same on a GPU that switches in this time.
fn switches_in(us: u64, mut scenario: Scenario) -> Scenario {
    (scenario.gpu.preempt_ns, scenario.gpu.switch_ns) = (us * US, us * US);
    scenario
}

fn lingers(us: u64, mut scenario: Scenario) -> Scenario {
    scenario.workloads[0].linger_ns = Some(us * US);
    scenario
}

fn alone(mut scenario: Scenario) -> Report {
    scenario.clients.truncate(1);
    scenario.workloads.truncate(1);
    simulate(&scenario, PolicyName::TimeSlicing)
}

fn held(scenario: &Scenario) -> Report {
    simulate(scenario, PolicyName::SluiceWithHolds)
}

/// Asserts that a page has these rows of a table.
fn page_has(page: &str, rows: &[String]) {
    let path = format!("{}/../../docs/design/{page}.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let missing: Vec<&str> = rows.iter().map(String::as_str).filter(|row| !text.contains(row)).collect();
    assert!(missing.is_empty(), "{page} lacks\n{}", missing.join("\n"));
}

fn cells(report: &Report) -> String {
    let (service, training) = (&report.clients[0], &report.clients[1]);
    let within = service.part_within(SLO_NS);
    format!("{:.2}, {:.2} | {within:.3} | {:.3}", service.p50_ms, service.p99_ms, training.share)
}

#[test]
fn tail_is_longer_if_a_thread_takes_time_between_two_requests() {
    let mut rows = Vec::new();
    for (name, scenario, policy) in [
        ("Sluice, launches first", launches_first(), PolicyName::Sluice),
        (
            "Sluice, copies first, holds do not linger",
            lingers(0, copies_first()),
            PolicyName::SluiceWithHolds,
        ),
        ("time slicing", copies_first(), PolicyName::TimeSlicing),
    ] {
        let report = simulate(&scenario, policy);
        rows.push(format!("| {name} | {} |", cells(&report)));
        // The same without the thread's own times: a request that has waited follows at the same moment.
        let mut at_once = scenario.clone();
        let service = &mut at_once.workloads[0].service;
        (service.burst_ns, service.host) = (230 * US, HostTimes::default());
        let p99_ms = |report: &Report| report.clients[0].p99_ms;
        assert!(p99_ms(&report) > 1.2 * p99_ms(&simulate(&at_once, policy)), "{name}");
    }
    page_has("slo", &rows);
    page_has("performance-model", &rows);
}

#[test]
fn table_of_linger_times() {
    let mut rows = Vec::new();
    for (name, scenario) in [
        ("launches first", launches_first()),
        ("launches first, switches of 150 µs", switches_in(150, launches_first())),
        ("copies first", copies_first()),
    ] {
        for us in [0, 15, 45, 90, 180, 360, 1_000, 3_000] {
            let report = held(&lingers(us, scenario.clone()));
            rows.push(format!("| {name} | {us} µs | {} |", cells(&report)));
        }
        rows.push(format!("| {name} | learned | {} |", cells(&held(&scenario))));
    }
    page_has("slo", &rows);
}

#[test]
fn p99_is_below_1_8_times_alone_and_best_effort_keeps_what_it_had_within_2_5_points() {
    for scenario in [launches_first(), copies_first(), switches_in(150, launches_first())] {
        let (alone, report, before) =
            (alone(scenario.clone()), held(&scenario), held(&lingers(0, scenario.clone())));
        let ratio = |report: &Report| report.clients[0].p99_ms / alone.clients[0].p99_ms;
        assert!(ratio(&report) < 1.8 && ratio(&before) > 1.8, "{} before {}", ratio(&report), ratio(&before));
        assert!(report.clients[1].share > before.clients[1].share - 0.025);
    }
}

#[test]
fn best_effort_keeps_0_8_and_all_but_one_percent_take_0_6_ms_at_most_where_the_switch_is_short_or_hidden() {
    for (scenario, least) in [
        (copies_first(), 0.99),
        (switches_in(150, launches_first()), 0.99),
        // No linger time reaches 0.99 here while best effort keeps 0.8: see the table.
        (launches_first(), 0.975),
    ] {
        let report = held(&scenario);
        let (within, kept) = (report.clients[0].part_within(SLO_NS), report.clients[1].share);
        assert!(within >= least && kept >= 0.8, "{within} {kept}");
    }
}

/// A service whose requests come at these rates, each for 40 s.
fn at_rates(mut scenario: Scenario, rates: &[u64]) -> Scenario {
    let mut times = Vec::new();
    for (at, rate) in rates.iter().enumerate() {
        let mut span = scenario.clone();
        span.workloads[0].arrivals = Arrivals::Poisson { mean_ns: S / rate };
        (span.span_ns, span.seed) = (40 * S, at as u64 + 1);
        // The arrivals of a simulation: its requests and when they ended.
        let began = |request: &Finished| request.at_ns - request.lasted_ns;
        times.extend(
            alone(span).clients[0].finished.iter().map(|request| at as u64 * 40 * S + began(request)),
        );
    }
    times.sort_unstable();
    scenario.workloads[0].arrivals = Arrivals::Trace(times);
    scenario.span_ns = rates.len() as u64 * 40 * S;
    scenario
}

/// Second by second: best effort's share, and the part of the requests within the goal.
fn by_second(report: &Report) -> Vec<(f64, f64)> {
    let part = |second: u64| {
        let of = report.clients[0].finished.iter().filter(|request| request.at_ns / S == second);
        let (within, all) = of.fold((0.0, 0.0), |(within, all), request| {
            (within + f64::from(u8::from(request.lasted_ns <= SLO_NS)), all + 1.0)
        });
        if all > 0.0 { within / all } else { 1.0 }
    };
    let shares = &report.clients[1].per_second_ns;
    (0..).zip(shares).map(|(second, ns)| (*ns as f64 / S as f64, part(second))).collect()
}

/// How many seconds after each step of 40 s a figure is last further than `bound` from its mean in the 20 s before the next step.
fn settled_after(figures: &[f64], bound: f64) -> Vec<usize> {
    let settled = |span: &[f64]| {
        let mean = span[20..].iter().sum::<f64>() / span[20..].len() as f64;
        span.iter().rposition(|figure| (figure / mean - 1.0).abs() > bound).map_or(0, |last| last + 1)
    };
    figures.chunks(40).map(settled).collect()
}

fn assert_settles(report: &Report) {
    let (shares, parts): (Vec<f64>, Vec<f64>) = by_second(report).into_iter().unzip();
    for (what, figures) in [("best effort", &shares), ("within the goal", &parts)] {
        let settled = settled_after(figures, 0.1);
        assert!(settled.iter().all(|seconds| *seconds <= 20), "{what}: {settled:?}\n{figures:?}");
    }
}

#[test]
fn step_of_the_load_settles_within_20_s_and_stays_within_10_percent() {
    for scenario in [copies_first(), launches_first()] {
        let report = held(&at_rates(scenario, &[30, 300, 600, 100]));
        assert_settles(&report);
        // From 2 s after the step to 300 a second on, nearly as many meet the goal as in the steady state.
        let parts: Vec<f64> = by_second(&report).into_iter().map(|(_, part)| part).collect();
        let mean = |seconds: std::ops::Range<usize>| {
            parts[seconds.clone()].iter().sum::<f64>() / seconds.len() as f64
        };
        assert!(mean(42..47) > mean(60..80) - 0.02, "{:?}", &parts[40..60]);
    }
}
