//! `sluice sim run`: scheduling policies side by side on a scenario.

use super::plot;
use anyhow::Context;
use clap::Args;
use serde::Serialize;
use sluice_core::Share;
use sluice_policy_sim::report::ClientReport;
use sluice_policy_sim::{Report, Scenario, scenario, simulate};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Requests in a sweep.
const STEPS: u32 = 9;

/// Flags of `sluice sim run`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Scenario: a resource file in YAML with the workloads of its clients
    scenario: PathBuf,
    /// Draw the distribution of latencies, and which client had the GPU when, to this SVG file
    #[arg(long, value_name = "SVG")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Vary the request of the first client in nine steps; those of the others share the rest in their proportion
    #[arg(long, value_name = "request=FROM..TO", value_parser = parse_sweep)]
    sweep: Option<(f64, f64)>,
}

/// The results of all policies with one set of requests.
#[derive(Debug, Serialize)]
struct Run {
    /// Request of the first client.
    request: f64,
    policies: Vec<Report>,
}

/// Everything that `--json` prints.
#[derive(Debug, Serialize)]
struct Output {
    scenario: String,
    seed: u64,
    /// Events of all simulations, the real time that they took, and their quotient.
    events: u64,
    wall_seconds: f64,
    events_per_second: f64,
    runs: Vec<Run>,
}

fn parse_sweep(text: &str) -> Result<(f64, f64), String> {
    let range = text.strip_prefix("request=").and_then(|range| range.split_once(".."));
    let bounds = range.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let bounds = bounds.filter(|(from, to)| (0.0..=1.0).contains(from) && (*from..=1.0).contains(to));
    bounds.ok_or_else(|| {
        "expected request=FROM..TO with shares between 0 and 1, such as request=0.1..0.9".to_owned()
    })
}

/// Simulates and returns the text to print.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    let path = &arguments.scenario;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let file = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|why| why.to_string());
    let scenario =
        scenario::parse(&text, &file).with_context(|| format!("{} is no scenario", path.display()))?;
    anyhow::ensure!(!scenario.clients.is_empty(), "{} has no clients", path.display());
    let gpus = scenario.gpus();
    anyhow::ensure!(
        arguments.sweep.is_none() || gpus == 1,
        "{} has {gpus} GPUs, expected one GPU for a sweep",
        path.display()
    );
    let scenarios = match arguments.sweep {
        None => vec![scenario],
        Some((from, to)) => (0..STEPS)
            .map(|step| with_request(&scenario, from + (to - from) * f64::from(step) / f64::from(STEPS - 1)))
            .collect::<anyhow::Result<_>>()?,
    };
    let begun = Instant::now();
    let runs: Vec<Run> = scenarios
        .iter()
        .map(|scenario| Run {
            request: scenario.clients[0].request.as_fraction(),
            policies: scenario.policies.iter().map(|policy| simulate(scenario, *policy)).collect(),
        })
        .collect();
    let wall_seconds = begun.elapsed().as_secs_f64();
    if let (Some(path), Some(run)) = (&arguments.plot, runs.first()) {
        let svg = plot::draw(&run.policies);
        std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let events = runs.iter().flat_map(|run| &run.policies).map(|report| report.events).sum();
    let output = Output {
        scenario: path.display().to_string(),
        seed: scenarios[0].seed,
        events,
        wall_seconds,
        events_per_second: events as f64 / wall_seconds.max(1e-9),
        runs,
    };
    if arguments.json { Ok(serde_json::to_string_pretty(&output)? + "\n") } else { Ok(table(&output)) }
}

/// The scenario with another request of its first client.
fn with_request(scenario: &Scenario, request: f64) -> anyhow::Result<Scenario> {
    let mut scenario = scenario.clone();
    let others: f64 = scenario.clients.iter().skip(1).map(|client| client.request.as_fraction()).sum();
    for (index, client) in scenario.clients.iter_mut().enumerate() {
        let share = if index == 0 {
            request
        } else {
            client.request.as_fraction() * (1.0 - request) / others.max(1e-9)
        };
        // Rounded down: the requests add up to at most 1.
        let share = Share::from_fraction((share * 1e6).floor() / 1e6)?;
        anyhow::ensure!(
            share <= client.limit,
            "the sweep gives {} a request of {share}, above its limit {}",
            client.name,
            client.limit
        );
        client.request = share;
    }
    Ok(scenario)
}

fn table(output: &Output) -> String {
    let mut text = String::new();
    for run in &output.runs {
        if output.runs.len() > 1 {
            let _ = writeln!(text, "request of the first client: {:.3}", run.request);
        }
        let _ = writeln!(
            text,
            "{:<19} {:<20} {:>7} {:>9} {:>9} {:>9} {:>9}",
            "policy", "client", "share", "requests", "per s", "p50 ms", "p99 ms"
        );
        for report in &run.policies {
            for client in &report.clients {
                row(&mut text, report.policy, client);
            }
        }
    }
    let _ = writeln!(
        text,
        "{} events in {:.2} s: {:.2} million a second",
        output.events,
        output.wall_seconds,
        output.events_per_second / 1e6
    );
    text
}

fn row(text: &mut String, policy: &str, client: &ClientReport) {
    let ClientReport { name, share, requests, requests_per_second, p50_ms, p99_ms, .. } = client;
    let _ = writeln!(
        text,
        "{policy:<19} {name:<20} {share:>7.3} {requests:>9} {requests_per_second:>9.1} {p50_ms:>9.3} {p99_ms:>9.3}"
    );
}
