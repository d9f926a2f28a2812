//! Compares the measurements with the promises. The functions are pure, so that a test covers each kind of failure.

use serde::Serialize;
use sluice_load::record::BufferState;

use sluice_test_bed::Report;

use super::oracle::TenantReading;
use super::tenants::{Class, LIMIT, TenantPlan};
use crate::quantity::bytes;

/// Name of a simulated GPU in the result.
pub(crate) const SIMULATED: &str = "sim";
/// Largest deviation of a share from its quota: two percentage points ...
const SHARE_TOLERANCE: f64 = 0.02;
/// ... or, in a short run, two of the longest grants, which cannot be divided. Seconds.
const INDIVISIBLE: f64 = 0.2;
/// A GPU with two tenants that always have work is idle for less than a fifth of the time.
const LEAST_BUSY: f64 = 0.8;

/// Everything known of a tenant after its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) reading: TenantReading,
    /// Refused allocations by the tenant's count.
    pub(crate) denied: u64,
    /// The contents of its buffer; absent if it ended without a result.
    pub(crate) buffer: Option<BufferState>,
    pub(crate) errors: Vec<String>,
}

/// A tenant in the result. Its fields are the interface of `--json`.
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
pub(crate) struct DemoReport {
    pub(crate) gpu: String,
    seconds: f64,
    pub(crate) tenants: Vec<TenantResult>,
    pub(crate) work_conserved: f64,
    pub(crate) metrics_scraped: bool,
    pub(crate) ok: bool,
    /// The checks, for the printed summary.
    #[serde(skip)]
    pub(crate) checks: Report,
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
    /// Upper bound of the error of the memory figures, bytes.
    pub(crate) memory_slack: u64,
    /// The manager's metrics were fetched and named every tenant.
    pub(crate) metrics_scraped: bool,
}

pub(crate) fn evaluate(run: Run, tenants: &[(TenantPlan, Outcome)]) -> DemoReport {
    let best_effort = tenants.iter().filter(|(tenant, _)| tenant.class == Class::BestEffort);
    let best_effort: u64 = best_effort.map(|(_, outcome)| outcome.reading.gpu_ns).sum();
    let (mut results, mut checks) = (Vec::new(), Report::default());
    for (tenant, outcome) in tenants {
        let whole = match tenant.class {
            Class::BestEffort => best_effort as f64,
            Class::LatencyCritical => run.seconds * 1e9,
        };
        let result = result_of(tenant, outcome, outcome.reading.gpu_ns as f64 / whole.max(1.0));
        check_tenant(&mut checks, tenant, outcome, &result, &run);
        results.push(result);
    }
    let busy = run.busy * 100.0;
    checks.check(
        run.busy >= LEAST_BUSY,
        format!("the GPU worked {busy:.1} % of the time while both best-effort tenants had work"),
    );
    checks.check(run.metrics_scraped, "Prometheus metrics of every tenant were scraped from the pod-manager");
    DemoReport {
        gpu: run.gpu,
        seconds: run.seconds,
        tenants: results,
        work_conserved: run.busy,
        metrics_scraped: run.metrics_scraped,
        ok: checks.is_ok(),
        checks,
    }
}

fn result_of(tenant: &TenantPlan, outcome: &Outcome, share: f64) -> TenantResult {
    let reading = outcome.reading;
    TenantResult {
        name: tenant.name,
        class: tenant.class.name(),
        quota: tenant.quota,
        limit: LIMIT,
        share,
        memory_limit: tenant.memory_limit,
        memory_peak: reading.memory_peak,
        memory_denied: outcome.denied,
        lost: reading.submitted.saturating_sub(reading.completed),
        results_ok: outcome.errors.is_empty()
            && reading.completed > 0
            && outcome.buffer.as_ref().is_some_and(|buffer| buffer.is_after(reading.completed)),
    }
}

fn check_tenant(
    checks: &mut Report,
    tenant: &TenantPlan,
    outcome: &Outcome,
    result: &TenantResult,
    run: &Run,
) {
    let mut check = |ok, text: String| checks.check(ok, text);
    let name = tenant.name;
    if tenant.class == Class::BestEffort {
        let (share, quota) = (result.share * 100.0, tenant.quota * 100.0);
        check(
            (result.share - tenant.quota).abs() <= SHARE_TOLERANCE.max(INDIVISIBLE / run.seconds),
            format!("{name} got {share:.1} % of the best-effort GPU time; its quota is {quota:.0} %"),
        );
    }
    let (peak, limit) = (result.memory_peak, bytes(tenant.memory_limit));
    let within = peak <= tenant.memory_limit.saturating_add(run.memory_slack);
    if tenant.runs_into_limit {
        let held = if peak == tenant.memory_limit { "exactly all".to_owned() } else { bytes(peak) };
        let refused = outcome.denied;
        check(
            within && refused > 0,
            format!(
                "{name} asked for more and more memory: it got {held} of its {limit}, was refused {refused} times, and went on"
            ),
        );
    } else {
        let held = if peak == 0 { "next to nothing".to_owned() } else { bytes(peak) };
        check(within, format!("{name} held {held} of the {limit} it may"));
    }
    let proof = match (result.lost, result.results_ok) {
        (0, true) => "all results correct, nothing lost, nothing run twice".to_owned(),
        (0, false) => "its results are not those of the kernels that the GPU ran".to_owned(),
        (lost, _) => format!("{lost} kernels lost"),
    };
    let errors: String = outcome.errors.iter().map(|error| format!("; {error}")).collect();
    check(
        result.lost == 0 && result.results_ok,
        format!("{name}: {} kernels, {proof}{errors}", outcome.reading.completed),
    );
}

#[cfg(test)]
mod tests;
