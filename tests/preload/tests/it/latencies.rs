//! The latencies that the manager exports, beside those that the service measured itself.

use sluice_preload_tests::{Node, Tenant, eventually, exclusive};

const RESOURCES: &str = "clients:\n  - { name: service, request: 0.9, memory: 1Gi, class: latency-critical, slo: 4ms }\n  - { name: training, request: 0.1, memory: 1Gi }\n";

const REQUESTS: u64 = 200;

/// Half the width of a bucket of the report page, and of the next one.
const BUCKET: f64 = 0.08;

/// The latencies that a side has counted: number and sum in seconds.
#[derive(Debug, Clone, Copy)]
struct Counted {
    requests: f64,
    seconds: f64,
}

fn exported(node: &Node) -> Counted {
    Counted {
        requests: node.metric("sluice_request_seconds_count", "service"),
        seconds: node.metric("sluice_request_seconds_sum", "service"),
    }
}

fn quantile(node: &Node, quantile: &str) -> f64 {
    let labels = ["client=\"service\"", &format!("quantile=\"{quantile}\"")];
    node.metrics().sum("sluice_request_quantile_seconds", &labels).expect("a latency-critical client has it")
}

/// The manager's figures are the service's: number and mean within 5 %, quantiles within a bucket.
fn check(node: &Node, service: &mut Tenant) {
    let before = exported(node);
    let line = service.ask(&REQUESTS.to_string());
    let numbers: Vec<f64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
    let [requests, mean_ns, p50_ns, p98_ns, p995_ns] = numbers[..] else { panic!("{line}") };
    let after = eventually("the requests are counted", || {
        let after = exported(node);
        (after.requests - before.requests >= requests * 0.99).then_some(after)
    });
    let counted = after.requests - before.requests;
    assert!((counted / requests - 1.0).abs() < 0.05, "{counted} requests exported, {requests} measured");
    let mean = (after.seconds - before.seconds) / counted;
    let error = mean / (mean_ns / 1e9) - 1.0;
    eprintln!(
        "mean {mean} s exported, {mean_ns} ns measured: {error:.4}; {counted} requests, {requests} measured"
    );
    assert!(error.abs() < 0.05, "mean: {mean} s exported, {mean_ns} ns measured");
    let (p50, p99) = (quantile(node, "0.5"), quantile(node, "0.99"));
    eprintln!("p50 {p50} s exported, {p50_ns} ns; p99 {p99} s, {p98_ns} to {p995_ns} ns");
    assert!((p50 / (p50_ns / 1e9) - 1.0).abs() < BUCKET, "median: {p50} s exported, {p50_ns} ns measured");
    // The requests before the measured ones are in it, too.
    let range = p98_ns / 1e9 * (1.0 - BUCKET)..=p995_ns / 1e9 * (1.0 + BUCKET);
    assert!(range.contains(&p99), "p99: {p99} s exported, {range:?} measured");
}

fn service(node: &Node, shape: &str) -> Tenant {
    let mut service = node.tenant("service", "latencies").arguments(shape).start();
    service.expect("ready");
    service
}

fn check_alone(shape: &str) {
    // The hook's and the service's clocks are the machine's.
    let _lock = exclusive();
    let node = Node::with(RESOURCES).manager_arguments("--controls simulated").start();
    let mut service = service(&node, shape);
    check(&node, &mut service);
    assert_eq!(node.metric("sluice_unobserved_steps_total", "service"), 0.0);
    service.finish().expect_success();
}

#[test]
fn requests_of_a_copy_and_a_graph_are_exported_as_the_service_measures_them() {
    check_alone("graph");
}

#[test]
fn requests_of_many_launches_are_exported_as_the_service_measures_them() {
    check_alone("launches");
}

#[test]
fn requests_of_a_decoding_service_are_exported_as_it_measures_them() {
    check_alone("decode");
}

#[test]
fn requests_of_a_polling_service_are_exported_as_it_measures_them() {
    check_alone("polled");
}

#[test]
fn requests_that_end_with_an_event_are_exported_as_the_service_measures_them() {
    check_alone("event");
}

#[test]
fn requests_beside_a_training_are_exported_and_those_above_the_slo_are_counted() {
    let _lock = exclusive();
    let node = Node::with(RESOURCES).manager_arguments("--controls simulated").start();
    let mut training = node.tenant("training", "busy").arguments("2000 50").start();
    training.expect("ready");
    let mut service = service(&node, "graph");
    check(&node, &mut service);
    // Each tenth request has 4.5 ms of work, the others 1.5 ms.
    let violations = node.metric("sluice_slo_violations_total", "service");
    let all = exported(&node).requests;
    assert!(violations >= REQUESTS as f64 / 10.0 && violations < all, "{violations} of {all} requests");
    service.finish().expect_success();
    training.finish().expect_success();
}
