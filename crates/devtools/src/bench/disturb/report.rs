//! The result: one line for each scenario as it ends, and all figures as JSON.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use super::super::provenance::{commit, date, machine};
use super::disturbances::Observed;
use super::exported::Difference;
use super::host::HostLoad;
use super::judge::{Figure, figures};
use super::measure::Measured;
use super::scenario::Scenario;
use super::windows::Worst;

/// The result of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) passed: bool,
    pub(super) figures: Vec<Figure>,
    /// Why the scenario was not measured to its end.
    error: Option<String>,
    details: Option<Details>,
}

/// What the figures were computed from; shares are parts of the GPU's time, by client.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Details {
    clients: Vec<&'static str>,
    seconds: f64,
    shares: Vec<f64>,
    entitled: Vec<f64>,
    switching: f64,
    idle: f64,
    worst: Option<Worst>,
    /// The shares of each second.
    by_second: Vec<Vec<f64>>,
    exported: Option<Vec<Difference>>,
    exported_whole_run: Option<Vec<f64>>,
    observed: Observed,
    latency_ms: Option<f64>,
    host: HostLoad,
}

impl Row {
    pub(super) fn new(scenario: &Scenario, outcome: anyhow::Result<Measured>) -> Self {
        let name = scenario.name.clone();
        let measured = match outcome {
            Ok(measured) => measured,
            Err(why) => {
                let error = Some(format!("{why:#}"));
                return Self { name, passed: false, figures: Vec::new(), error, details: None };
            }
        };
        let figures = figures(scenario, &measured);
        let passed = figures.iter().all(|figure| figure.passed);
        let Measured {
            seconds,
            shares,
            entitled,
            switching,
            idle,
            worst,
            by_second,
            exported,
            exported_whole_run,
            observed,
            latency_ms,
            host,
            ..
        } = measured;
        let clients = scenario.clients.iter().map(|client| client.name).collect();
        let details = Details {
            clients,
            seconds,
            shares,
            entitled,
            switching,
            idle,
            worst,
            by_second,
            exported,
            exported_whole_run,
            observed,
            latency_ms,
            host,
        };
        Self { name, passed, figures, error: None, details: Some(details) }
    }
}

/// The first figure, and those that missed their bars.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {:36}", if self.passed { "ok    " } else { "FAILED" }, self.name)?;
        if let Some(error) = &self.error {
            return write!(f, " not measured: {}", error.lines().next().unwrap_or_default());
        }
        let shown = self.figures.iter().enumerate().filter(|(place, figure)| *place == 0 || !figure.passed);
        for (place, (_, figure)) in shown.enumerate() {
            let (separator, sign) =
                (if place == 0 { "" } else { ";" }, if figure.is_least { "≥" } else { "≤" });
            let measured = figure.measured.map_or("none".to_owned(), |value| format!("{value:.1}"));
            write!(f, "{separator} {} {measured} ({sign} {:.1})", figure.what, figure.bar)?;
        }
        let busy = self.details.as_ref().map_or(0.0, |details| 100.0 * details.host.busy());
        write!(f, " · host {busy:.0} % busy")
    }
}

/// All results, and where they come from.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    commit: String,
    date: String,
    machine: String,
    command: String,
    passed: usize,
    failed: usize,
    pub(super) scenarios: Vec<Row>,
}

impl Report {
    pub(super) fn new(scenarios: Vec<Row>) -> Self {
        let passed = scenarios.iter().filter(|row| row.passed).count();
        Self {
            commit: commit(),
            date: date(),
            machine: machine(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            passed,
            failed: scenarios.len() - passed,
            scenarios,
        }
    }

    pub(super) fn is_passed(&self) -> bool {
        self.failed == 0
    }

    /// Writes it as JSON. A reader never sees half of it.
    pub(super) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        let part = path.with_extension("part");
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} scenarios passed, {} failed", self.passed, self.failed)
    }
}
