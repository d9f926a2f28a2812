use super::*;
use crate::demo::tenants;
use sluice_load::kernel;

fn buffer_after(launches: u64) -> BufferState {
    let mut words: Vec<u64> = (0..16).map(kernel::initial).collect();
    for _ in 0..launches {
        for (index, word) in words.iter_mut().enumerate() {
            *word = kernel::mix(*word, index as u64);
        }
    }
    BufferState::of(&words)
}

fn outcome(gpu_ns: u64, denied: u64) -> Outcome {
    let reading = TenantReading { gpu_ns, memory: 0, memory_peak: 1 << 30, submitted: 5, completed: 5 };
    Outcome { reading, denied, buffer: Some(buffer_after(5)), errors: Vec::new() }
}

/// Three tenants that got what was promised, changed by `spoil`.
fn evaluated(spoil: impl FnOnce(&mut Run, &mut [(TenantPlan, Outcome)])) -> DemoReport {
    let mut run =
        Run { gpu: "sim".to_owned(), seconds: 10.0, busy: 0.95, memory_slack: 0, metrics_scraped: true };
    let outcomes = [outcome(3_000_000_000, 27), outcome(7_000_000_000, 0), outcome(100_000_000, 0)];
    let mut tenants: Vec<_> = tenants::plans().into_iter().zip(outcomes).collect();
    spoil(&mut run, &mut tenants);
    evaluate(run, &tenants)
}

#[test]
fn a_run_that_keeps_all_promises_is_ok() {
    let report = evaluated(|_, _| ());
    assert!(report.ok, "{:?}", report.checks);
    assert!((report.tenants[2].share - 0.01).abs() < 1e-9);
}

#[test]
fn each_broken_promise_alone_fails_the_report() {
    type Spoil = fn(&mut Run, &mut [(TenantPlan, Outcome)]);
    let spoils: [(&str, Spoil); 11] = [
        ("shares swapped", |_, t| {
            t[0].1.reading.gpu_ns = 7_000_000_000;
            t[1].1.reading.gpu_ns = 3_000_000_000;
        }),
        ("shares even", |_, t| t[0].1.reading.gpu_ns = 7_000_000_000),
        ("two points and a bit too much", |_, t| t[0].1.reading.gpu_ns = 3_310_000_000),
        ("one byte above the limit", |_, t| t[0].1.reading.memory_peak = t[0].0.memory_limit + 1),
        ("never refused", |_, t| t[0].1.denied = 0),
        ("a kernel lost", |_, t| t[1].1.reading.submitted = 6),
        ("a kernel run twice", |_, t| t[1].1.buffer = Some(buffer_after(6))),
        ("a tenant ended without a result", |_, t| t[2].1.buffer = None),
        ("a driver error", |_, t| t[2].1.errors.push("cuLaunchKernel: error 700".to_owned())),
        ("an idle GPU", |run, _| run.busy = 0.5),
        ("no metrics", |run, _| run.metrics_scraped = false),
    ];
    for (failure, spoil) in spoils {
        let report = evaluated(spoil);
        assert!(!report.ok, "{failure}");
        assert!(report.checks.into_result().is_err(), "{failure}");
    }
}

#[test]
fn a_short_run_may_deviate_by_two_grants() {
    let three_points_off = |seconds| {
        evaluated(|run, tenants| {
            run.seconds = seconds;
            tenants[0].1.reading.gpu_ns = 3_450_000_000;
        })
    };
    assert!(three_points_off(4.0).ok);
    assert!(!three_points_off(10.0).ok);
}

#[test]
fn a_tenant_without_kernels_fails_the_report() {
    let report = evaluated(|_, t| t[2].1 = Outcome { buffer: Some(buffer_after(0)), ..Outcome::default() });
    assert!(!report.ok);
}

#[test]
fn the_json_has_exactly_the_documented_fields() {
    let json = serde_json::to_value(evaluated(|_, _| ())).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&json), ["gpu", "metrics_scraped", "ok", "seconds", "tenants", "work_conserved"]);
    assert_eq!(
        keys(&json["tenants"][0]),
        [
            "class",
            "limit",
            "lost",
            "memory_denied",
            "memory_limit",
            "memory_peak",
            "name",
            "quota",
            "results_ok",
            "share"
        ]
    );
}
