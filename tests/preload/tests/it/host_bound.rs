//! Time slices beside a latency-critical process that submits its work more slowly than the GPU executes it.

use sluice_preload_tests::{Node, Tenant, exclusive, shared};
use sluice_test_bed::timeline;

/// A step: so many launches with at least so many µs between two of them, in which the GPU can switch there and back. 64 steps are recorded before a test can begin.
const LAUNCHES: u64 = 240;
const GAP_US: u64 = 300;
const KERNEL_US: u64 = 20;
const STEP_NS: u64 = LAUNCHES * GAP_US * 1_000;
const BEFORE_TEST_NS: u64 = 64 * STEP_NS;

/// The service is busy for the whole time, and is charged for nearly half of it. Beyond its request it would be delayed.
const RESOURCES: &str = "clients:\n  - { name: service, request: 0.9, memory: 1Gi, class: latency-critical }\n  - { name: training, request: 0.1, memory: 1Gi }\n";

/// Context switches per launch of the service, and the part of the GPU's time that the training had, in a span of the simulator's ledger.
fn measure(node: &Node, (service, training): (&Tenant, &Tenant), span: (u64, u64)) -> (f64, f64) {
    let switches = timeline::handoffs(&node.timeline(span)).count() as f64;
    let window = node.window(span);
    let launches = window.gpu_ns[&service.pid()] as f64 / (KERNEL_US * 1_000) as f64;
    (switches / launches, window.share_of_time(training.pid()))
}

fn slices(node: &Node, mode: &str) -> Option<f64> {
    let labels = ["client=\"service\"", &format!("mode=\"{mode}\"")];
    node.metrics().sum("sluice_client_slices", &labels)
}

fn tested(node: &Node) -> bool {
    node.metrics()
        .sum("sluice_client_burst_seconds", &["client=\"service\""])
        .is_some_and(|seconds| seconds > 0.0)
}

fn training(node: &Node) -> Tenant {
    let mut training = node.tenant("training", "busy").arguments("2000 50").start();
    training.expect("ready");
    training
}

/// A service without hold kernels, whose GPU time would count as that of launches.
fn service(node: &Node, arguments: &str) -> Tenant {
    let service = node.tenant("service", "eager").arguments(arguments);
    let mut service = service.environment("SLUICE_HINTS", "off").start();
    service.expect("ready");
    service
}

#[test]
fn host_bound_service_switches_less_and_the_training_gains_after_the_decision_for_default_slices() {
    // The hook compares durations of steps on the real clock.
    let _lock = exclusive();
    let node = Node::with(RESOURCES).manager_arguments("--controls simulated").start();
    let training = training(&node);
    let service = service(&node, &format!("{LAUNCHES} {GAP_US} {KERNEL_US}"));
    let ready = node.ledger().gpu.now_ns;
    // After the manager has set the short slices, and before a test can begin.
    let before = (ready + BEFORE_TEST_NS / 4, ready + BEFORE_TEST_NS * 3 / 4);
    node.let_pass(before.1 - ready);
    let (switches, share) = measure(&node, (&service, &training), before);
    assert!(switches > 1.0, "beside short slices each launch is a switch there and back: {switches}");

    node.when("the end of the test", |_| tested(&node).then_some(()));
    assert_eq!((slices(&node, "short"), slices(&node, "default")), (Some(0.0), Some(1.0)));
    node.when("default slices", |ledger| {
        ledger.groups.iter().all(|g| g.timeslice_ns == 2_048_000).then_some(())
    });
    let after = node.let_pass(before.1 - before.0);
    let (fewer, larger) = measure(&node, (&service, &training), after);
    assert!(fewer < switches * 0.6, "{fewer} switches per launch, {switches} before");
    assert!(larger > share + 0.1, "the training had {larger} of the GPU's time, {share} before");
    service.finish().expect_success();
    training.finish().expect_success();
}

#[test]
fn service_that_waits_for_the_gpu_keeps_short_slices() {
    let _lock = shared();
    let node = Node::with(RESOURCES).manager_arguments("--controls simulated").start();
    let training = training(&node);
    // 20 kernels at once, which take 30 ms.
    let service = service(&node, "20 0 1500");
    node.when("80 steps", |ledger| {
        ledger.by_pid(service.pid()).filter(|row| row.kernels_completed >= 1_600).map(|_| ())
    });
    assert_eq!((slices(&node, "short"), slices(&node, "default")), (Some(1.0), Some(0.0)));
    assert!(!tested(&node), "it was never host-bound");
    service.finish().expect_success();
    training.finish().expect_success();
}
