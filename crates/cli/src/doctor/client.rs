//! `sluice doctor --client`: what a manager has decided for one client, with the figures that it results from.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use sluice_test_bed::Metrics;

/// The time slices that best-effort clients have beside a latency-critical client.
#[derive(Debug, PartialEq, Serialize)]
struct SliceDecision {
    client: String,
    /// Processes of the client that want short slices, and the driver's default ones.
    want_short: f64,
    want_default: f64,
    /// Median time of a burst beside short and default slices in the last test, milliseconds; 0: not tested.
    short_ms: f64,
    default_ms: f64,
    /// Default slices are in force on this GPU.
    default_in_force: bool,
    /// Violations of the client's limits so far.
    violations: f64,
    /// Its processes that are stopped because of violations.
    stopped: f64,
}

/// Prints the decision for a client.
pub(super) fn run(client: &str, metrics: SocketAddr, as_json: bool) -> anyhow::Result<ExitCode> {
    let metrics = Metrics::scrape(metrics)?;
    let decision = SliceDecision::read(&metrics, client)
        .with_context(|| format!("the manager exports no time slices for a client {client}"))?;
    let text = if as_json { serde_json::to_string_pretty(&decision)? } else { decision.text() };
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}

impl SliceDecision {
    fn read(metrics: &Metrics, client: &str) -> Option<Self> {
        // A pod is named NAMESPACE/POD.
        let label = match client.split_once('/') {
            Some((namespace, pod)) => [format!("namespace=\"{namespace}\""), format!("pod=\"{pod}\"")],
            None => [format!("client=\"{client}\""), String::new()],
        };
        let [one, other] = &label;
        let of = |metric, mode| metrics.sum(metric, &[one, other, &format!("mode=\"{mode}\"")]);
        let median_ms = |mode| of("sluice_client_burst_seconds", mode).map(|seconds| seconds * 1e3);
        Some(Self {
            client: client.to_owned(),
            want_short: of("sluice_client_slices", "short")?,
            want_default: of("sluice_client_slices", "default")?,
            short_ms: median_ms("short")?,
            default_ms: median_ms("default")?,
            default_in_force: metrics.sum("sluice_default_slices", &[])? > 0.0,
            violations: metrics.sum("sluice_violations_total", &[one, other]).unwrap_or(0.0),
            stopped: metrics.sum("sluice_stopped_processes", &[one, other]).unwrap_or(0.0),
        })
    }

    fn text(&self) -> String {
        let (slices, violations) = (self.slices(), self.violations);
        if violations == 0.0 {
            return slices;
        }
        let stopped = match self.stopped {
            0.0 => String::new(),
            count => format!("\n  processes stopped because of them: {count}"),
        };
        format!(
            "{slices}\n  violations of its limits: {violations} (by kind: sluice_violations_total; docs/security.md){stopped}"
        )
    }

    fn slices(&self) -> String {
        let Self { client, want_short, want_default, short_ms, default_ms, default_in_force, .. } = self;
        let in_force = if *default_in_force { "default (2048 µs)" } else { "short (1 µs)" };
        if want_short + want_default == 0.0 {
            return format!("{client}: no latency-critical process is attached");
        }
        let tested = if *short_ms == 0.0 {
            "not tested: the processes wait for the GPU, or no other client used it".to_owned()
        } else {
            format!(
                "median burst {short_ms:.3} ms beside short slices, {default_ms:.3} ms beside default ones"
            )
        };
        format!(
            "{client}: {want_short} processes want short slices for best-effort clients, {want_default} default ones\n  last test: {tested}\n  in force while a latency-critical process is attached: {in_force}"
        )
    }
}

#[cfg(test)]
mod tests;
