//! From what was seen to what is claimed: pure, so that every way to fail has its test.

use serde::Serialize;
use sluice_load::record::BufferState;

use super::plan::{Class, Tenant};
use super::witness::Seen;
use crate::quantity::bytes;

/// What the result calls a simulated GPU.
pub(crate) const SIMULATED: &str = "sim";
/// How far a share may be from its quota: two points ...
const SHARE_TOLERANCE: f64 = 0.02;
/// ... or, in a short run, two of the longest grants, which nobody could divide. Seconds.
const INDIVISIBLE: f64 = 0.2;
/// A GPU with two tenants that always have work is idle for less than a fifth of the time.
const LEAST_BUSY: f64 = 0.8;

/// What is known of a tenant after its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// What the witness saw.
    pub(crate) seen: Seen,
    /// Allocations that were refused, as the tenant noticed.
    pub(crate) denied: u64,
    /// The contents of its buffer; absent if it died.
    pub(crate) buffer: Option<BufferState>,
    /// Errors it reported.
    pub(crate) errors: Vec<String>,
}

/// One line of the result's tenants. Its fields are the interface of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TenantResult {
    name: &'static str,
    class: &'static str,
    quota: f64,
    limit: f64,
    /// Of the best-effort GPU time for best-effort tenants; of the whole window for the latency-critical one.
    pub(crate) share: f64,
    memory_limit: u64,
    memory_peak: u64,
    memory_denied: u64,
    lost: u64,
    results_ok: bool,
}

/// The result; its fields are the interface of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Verdict {
    gpu: String,
    seconds: f64,
    pub(crate) tenants: Vec<TenantResult>,
    pub(crate) work_conserved: f64,
    pub(crate) metrics_scraped: bool,
    /// All checks hold.
    pub(crate) ok: bool,
    /// The checks, for people.
    #[serde(skip)]
    pub(crate) checks: Vec<Check>,
}

impl Verdict {
    /// Whether the GPU was simulated.
    pub(crate) fn is_simulated(&self) -> bool {
        self.gpu == SIMULATED
    }
}

/// One claim and whether it holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Check {
    /// It holds.
    pub(crate) ok: bool,
    /// The claim with its figures.
    pub(crate) text: String,
}

/// The run as a whole.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// `sim`, or the device's name.
    pub(crate) gpu: String,
    /// Length of the window in which both best-effort tenants had work, seconds.
    pub(crate) seconds: f64,
    /// Part of the window in which the GPU worked.
    pub(crate) busy: f64,
    /// How many bytes the witness's memory figures may be too high.
    pub(crate) memory_slack: u64,
    /// The manager's metrics were fetched and named every tenant.
    pub(crate) metrics_scraped: bool,
}

/// Judges the run.
pub(crate) fn judge(run: Run, tenants: &[(Tenant, Outcome)]) -> Verdict {
    let best_effort: u64 = tenants
        .iter()
        .filter(|(tenant, _)| tenant.class == Class::BestEffort)
        .map(|(_, o)| o.seen.gpu_ns)
        .sum();
    let results: Vec<TenantResult> = tenants
        .iter()
        .map(|(tenant, outcome)| {
            let whole = match tenant.class {
                Class::BestEffort => best_effort as f64,
                Class::LatencyCritical => run.seconds * 1e9,
            };
            result_of(tenant, outcome, outcome.seen.gpu_ns as f64 / whole.max(1.0))
        })
        .collect();
    let mut checks: Vec<Check> = tenants
        .iter()
        .zip(&results)
        .flat_map(|((tenant, outcome), result)| checks_of(tenant, outcome, result, &run))
        .collect();
    checks.push(Check {
        ok: run.busy >= LEAST_BUSY,
        text: format!(
            "the GPU worked {:.1} % of the time while both best-effort tenants had work",
            run.busy * 100.0
        ),
    });
    checks.push(Check {
        ok: run.metrics_scraped,
        text: "Prometheus metrics of every tenant were scraped from the pod-manager".to_owned(),
    });
    Verdict {
        gpu: run.gpu,
        seconds: run.seconds,
        tenants: results,
        work_conserved: run.busy,
        metrics_scraped: run.metrics_scraped,
        ok: checks.iter().all(|check| check.ok),
        checks,
    }
}

fn result_of(tenant: &Tenant, outcome: &Outcome, share: f64) -> TenantResult {
    let seen = outcome.seen;
    TenantResult {
        name: tenant.name,
        class: tenant.class.name(),
        quota: tenant.quota,
        limit: tenant.limit,
        share,
        memory_limit: tenant.memory_limit,
        memory_peak: seen.memory_peak,
        memory_denied: outcome.denied,
        lost: seen.submitted.saturating_sub(seen.completed),
        results_ok: outcome.errors.is_empty()
            && seen.completed > 0
            && outcome.buffer.as_ref().is_some_and(|buffer| buffer.is_after(seen.completed)),
    }
}

fn checks_of(tenant: &Tenant, outcome: &Outcome, result: &TenantResult, run: &Run) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut check = |ok, text| checks.push(Check { ok, text });
    let name = tenant.name;
    if tenant.class == Class::BestEffort {
        check(
            (result.share - tenant.quota).abs() <= SHARE_TOLERANCE.max(INDIVISIBLE / run.seconds),
            format!(
                "{name} got {:.1} % of the best-effort GPU time; its quota is {:.0} %",
                result.share * 100.0,
                tenant.quota * 100.0
            ),
        );
    }
    let (peak, limit) = (result.memory_peak, tenant.memory_limit);
    let within = peak <= limit.saturating_add(run.memory_slack);
    if tenant.runs_into_limit {
        let (refused, held) =
            (outcome.denied, if peak == limit { "exactly all".to_owned() } else { bytes(peak) });
        check(
            within && refused > 0,
            format!(
                "{name} asked for more and more memory: it got {held} of its {}, was refused {refused} times, and went on",
                bytes(limit)
            ),
        );
    } else {
        let held = if peak == 0 { "next to nothing".to_owned() } else { bytes(peak) };
        check(within, format!("{name} held {held} of the {} it may", bytes(limit)));
    }
    let proof = match (result.lost, result.results_ok) {
        (0, true) => "all results correct, nothing lost, nothing run twice".to_owned(),
        (0, false) => "its results are not those of the kernels that the GPU ran".to_owned(),
        (lost, _) => format!("{lost} kernels lost"),
    };
    let errors: String = outcome.errors.iter().map(|error| format!("; {error}")).collect();
    check(
        result.lost == 0 && result.results_ok,
        format!("{name}: {} kernels, {proof}{errors}", outcome.seen.completed),
    );
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::plan;
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
        let seen = Seen { gpu_ns, memory: 0, memory_peak: 1 << 30, submitted: 5, completed: 5 };
        Outcome { seen, denied, buffer: Some(buffer_after(5)), errors: Vec::new() }
    }

    /// Three tenants as promised, changed by `spoil`.
    fn judged(spoil: impl FnOnce(&mut Run, &mut [(Tenant, Outcome)])) -> Verdict {
        let mut run =
            Run { gpu: "sim".to_owned(), seconds: 10.0, busy: 0.95, memory_slack: 0, metrics_scraped: true };
        let outcomes = [outcome(3_000_000_000, 27), outcome(7_000_000_000, 0), outcome(100_000_000, 0)];
        let mut tenants: Vec<_> = plan::tenants().into_iter().zip(outcomes).collect();
        spoil(&mut run, &mut tenants);
        judge(run, &tenants)
    }

    #[test]
    fn promises_that_are_kept_are_ok() {
        let verdict = judged(|_, _| ());
        assert!(verdict.ok, "{:?}", verdict.checks);
        assert!((verdict.tenants[2].share - 0.01).abs() < 1e-9);
    }

    #[test]
    fn each_broken_promise_alone_turns_the_verdict_red() {
        type Spoil = fn(&mut Run, &mut [(Tenant, Outcome)]);
        let spoils: [(&str, Spoil); 11] = [
            ("shares swapped", |_, t| {
                t[0].1.seen.gpu_ns = 7_000_000_000;
                t[1].1.seen.gpu_ns = 3_000_000_000;
            }),
            ("shares even", |_, t| t[0].1.seen.gpu_ns = 7_000_000_000),
            ("two points and a bit too much", |_, t| t[0].1.seen.gpu_ns = 3_310_000_000),
            ("one byte above the limit", |_, t| t[0].1.seen.memory_peak = t[0].0.memory_limit + 1),
            ("never refused", |_, t| t[0].1.denied = 0),
            ("a kernel lost", |_, t| t[1].1.seen.submitted = 6),
            ("a kernel run twice", |_, t| t[1].1.buffer = Some(buffer_after(6))),
            ("a tenant died", |_, t| t[2].1.buffer = None),
            ("a driver error", |_, t| t[2].1.errors.push("cuLaunchKernel: error 700".to_owned())),
            ("an idle GPU", |run, _| run.busy = 0.5),
            ("no metrics", |run, _| run.metrics_scraped = false),
        ];
        for (what, spoil) in spoils {
            let verdict = judged(spoil);
            assert!(!verdict.ok, "{what}");
            assert!(verdict.checks.iter().any(|check| !check.ok), "{what}");
        }
    }

    #[test]
    fn a_short_run_is_judged_by_what_a_single_grant_can_move() {
        let three_points_off = |seconds| {
            judged(|run, tenants| {
                run.seconds = seconds;
                tenants[0].1.seen.gpu_ns = 3_450_000_000;
            })
        };
        assert!(three_points_off(4.0).ok);
        assert!(!three_points_off(10.0).ok);
    }

    #[test]
    fn a_tenant_that_never_ran_proves_nothing() {
        let verdict = judged(|_, t| t[2].1 = Outcome { buffer: Some(buffer_after(0)), ..Outcome::default() });
        assert!(!verdict.ok);
    }

    #[test]
    fn the_json_has_the_promised_fields_and_no_others() {
        let json = serde_json::to_value(judged(|_, _| ())).unwrap();
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
}
