//! Latencies of a latency-critical client's steps and requests, from report pages to /metrics.

use crate::support::{MS, World, until};
use sluice_comm::latency::{BUCKETS, LatencyKind};
use sluice_comm::page::report;

const SECOND: u64 = 1000 * MS;

const CLIENTS: &str = "
clients:
  - { name: be, request: 0.3, memory: 8Gi }
  - { name: lc, request: 0.4, memory: 1Gi, class: latency-critical, slo: 2ms }
";

fn of(world: &World, series: &str) -> f64 {
    world.metric(&format!("sluice_{series}{{client=\"lc\"}}")).unwrap()
}

fn quantile(world: &World, what: &str, quantile: &str) -> f64 {
    world.metric(&format!("sluice_{what}_quantile_seconds{{client=\"lc\",quantile=\"{quantile}\"}}")).unwrap()
}

#[test]
fn latencies_of_all_processes_of_a_client_are_exported_also_of_ended_ones() {
    let world = World::with(CLIENTS, |_| {});
    let (one, other) = (world.process("lc"), world.process("lc"));
    world.clock.advance(SECOND);
    for hook in [&one, &other] {
        (0..100).for_each(|_| hook.report().add_latency(LatencyKind::Step, MS));
        (0..49).for_each(|_| hook.report().add_latency(LatencyKind::Request, 2 * MS));
        hook.report().add_latency(LatencyKind::Request, 40 * MS);
        hook.report().count_slo_violation();
        hook.report().count_unobserved_step();
    }
    drop(other);
    world.settle();
    assert_eq!((of(&world, "step_seconds_count"), of(&world, "step_seconds_sum")), (200.0, 0.2));
    assert_eq!((of(&world, "request_seconds_count"), of(&world, "request_seconds_sum")), (100.0, 0.276));
    assert_eq!((of(&world, "slo_violations_total"), of(&world, "unobserved_steps_total")), (2.0, 2.0));
    for (what, part, exact) in [("step", "0.5", 0.001), ("request", "0.5", 0.002), ("request", "0.99", 0.04)]
    {
        let error = quantile(&world, what, part) / exact - 1.0;
        assert!(error.abs() < 0.0401, "{what} {part}: {error}");
    }
    world.advance(120 * SECOND);
    assert!(quantile(&world, "request", "0.5").is_nan(), "there was no request in the last minute");
}

#[test]
fn page_shows_the_latency_goal_and_follows_the_resource_file() {
    let world = World::with(CLIENTS, |_| {});
    let (lc, be) = (world.process("lc"), world.process("be"));
    assert_eq!((lc.page().slo_ns(), be.page().slo_ns()), (2 * MS, 0));
    std::fs::write(&world.file, CLIENTS.replace("slo: 2ms", "slo: 7ms")).unwrap();
    until("the goal has changed", || lc.page().slo_ns() == 7 * MS);
    world.settle();
    assert_eq!(of(&world, "slo_seconds"), 0.007);
}

#[test]
fn longest_linger_time_of_a_clients_processes_is_exported_up_to_a_second() {
    let world = World::with(CLIENTS, |_| {});
    let (one, other) = (world.process("lc"), world.process("lc"));
    one.report().report_linger(45_000);
    other.report().report_linger(90_000);
    world.settle();
    assert_eq!(of(&world, "linger_seconds"), 0.000_09);
    one.report().report_linger(u64::MAX);
    world.settle();
    assert_eq!(of(&world, "linger_seconds"), 1.0);
}

#[test]
fn largest_errors_of_a_clients_predictions_are_exported() {
    let world = World::with(CLIENTS, |_| {});
    let (one, other) = (world.process("lc"), world.process("lc"));
    one.report().report_prediction_errors([30_000, 5_000]);
    other.report().report_prediction_errors([0, u64::MAX]);
    world.settle();
    let error = |predicted| {
        let labels = format!("{{client=\"lc\",predicted=\"{predicted}\"}}");
        world.metric(&format!("sluice_prediction_error_seconds{labels}")).unwrap()
    };
    assert_eq!((error("arrival"), error("preparation")), (0.000_03, 1.0));
}

#[test]
fn best_effort_client_has_no_latencies_whatever_its_page_contains() {
    let world = World::with(CLIENTS, |_| {});
    let be = world.process("be");
    world.clock.advance(SECOND);
    be.report().add_latency(LatencyKind::Request, MS);
    be.report().count_slo_violation();
    world.settle();
    let metrics = world.metrics();
    let latencies = ["request_", "step_", "slo_", "unobserved_steps_", "linger_", "prediction_error_"]
        .map(|series| format!("sluice_{series}"));
    let of_be =
        |line: &&str| line.contains("client=\"be\"") && latencies.iter().any(|name| line.starts_with(name));
    assert_eq!(metrics.lines().find(of_be), None);
}

#[test]
fn page_with_impossible_counters_counts_nothing_and_later_requests_count() {
    let world = World::with(CLIENTS, |_| {});
    let lc = world.process("lc");
    let counters = || {
        [
            "request_seconds_count",
            "request_seconds_sum",
            "step_seconds_count",
            "slo_violations_total",
            "unobserved_steps_total",
        ]
        .map(|series| of(&world, series))
    };
    let words =
        || (report::STEPS..report::STEPS + BUCKETS + 1).chain(report::REQUESTS..report::UNOBSERVED_STEPS + 1);
    world.settle();
    for value in [u64::MAX, 1 << 63, 0, u64::MAX, 1] {
        world.clock.advance(MS);
        words().for_each(|word| lc.write_report(word, value));
        world.settle();
    }
    let [requests, seconds, steps, violations, unobserved] = counters();
    assert_eq!((requests, seconds, steps, violations), (0.0, 0.0, 0.0, 0.0));
    assert!(unobserved <= 5.0 * 32_000.0, "a step takes a microsecond: {unobserved}");
    world.clock.advance(SECOND);
    lc.report().add_latency(LatencyKind::Request, 5 * MS);
    lc.report().count_slo_violation();
    world.settle();
    let [requests, seconds, .., violations, _] = counters();
    assert_eq!((requests, seconds, violations), (1.0, 0.005, 1.0));
}
