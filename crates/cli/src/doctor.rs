//! `sluice doctor`: examines this machine and its driver. Each driver control is tried on programs of the doctor and judged by the
//! kernels that they complete, never by the driver's return code.

pub(crate) mod child;
mod client;
mod finding;
mod groups;
mod machine;
mod manager;
mod mps;
mod next_steps;
mod program_checks;
pub(crate) mod self_test;
mod trials;
mod workspace;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use sluice_load::stream_gate_test::StreamGateResult;
use sluice_nvrm::DriverVersion;
use sluice_nvrm::self_test::Effect;

use child::Reported;
use finding::{CheckStatus, EnforcementLevel, Finding, Proofs, Report};
use next_steps::{AGAIN, DRIVER, MEMORY_OPS, REPORT_IT};
use workspace::{Workspace, answer};

/// Time limit of the whole examination.
const LIMIT: Duration = Duration::from_secs(18);
/// How long a program may take to get a context.
const START: Duration = Duration::from_secs(10);
/// How long an announcement may take after the program is ready.
const ANNOUNCE: Duration = Duration::from_secs(2);

/// Flags of `sluice doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 all is well, 1 degraded (Sluice works, with less than it could), 2 broken.
Uses GPU 0 for less than 20 seconds; other programs can use it meanwhile. Restores everything that it changes."
)]
pub(crate) struct Arguments {
    /// The GPU of this machine, or a simulated GPU: the one at SLUICE_SIM_SOCKET, or one that the doctor starts
    #[arg(long, value_enum, default_value_t = Gpu::Real)]
    gpu: Gpu,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// The hook that is tested [default: libsluice.so beside this program]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// Instead of examining the machine: what the manager at --metrics has decided for this client
    #[arg(long, value_name = "NAME", requires = "metrics")]
    client: Option<String>,
    /// Address of the manager's metrics, for example 127.0.0.1:9400
    #[arg(long, value_name = "ADDRESS", requires = "client")]
    metrics: Option<SocketAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Gpu {
    /// A simulated GPU
    Sim,
    /// The machine's GPU
    Real,
}

/// Examines the machine and prints the report.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let (Some(client), Some(metrics)) = (&arguments.client, arguments.metrics) {
        return client::run(client, metrics, arguments.json);
    }
    let report = examine(arguments.gpu == Gpu::Sim, &library(arguments.library.as_ref())?)?;
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        writeln!(out, "{report}")?;
    }
    Ok(report.exit_code())
}

/// The library at `named`, or the library beside this program.
fn library(named: Option<&PathBuf>) -> io::Result<PathBuf> {
    match named {
        Some(path) => Ok(path.clone()),
        None => Ok(std::env::current_exe()?.with_file_name("libsluice.so")),
    }
}

fn examine(simulated: bool, library: &Path) -> anyhow::Result<Report> {
    let begin = Instant::now();
    let end = begin + LIMIT;
    let workspace = Workspace::new(simulated)?;
    let nodes = machine::nodes(workspace.simulator());
    let reported = ask(&workspace, end)?;
    let (mps, is_shared) = mps::examine(&reported, simulated);
    let mut checks = vec![
        nodes,
        machine::library(&reported),
        machine::branch(&driver(&reported, simulated)),
        machine::compute_mode(&reported),
        machine::mig_mode(&reported),
        mps,
        machine::shared_memory(),
        machine::open_files(),
        machine::preloaded(),
    ];
    let level = if reported.driver.is_err() {
        (EnforcementLevel::None, "The driver does not work".to_owned())
    } else {
        let helper = workspace.helper("gate", &["gate"]);
        let tried = helper.and_then(|mut helper| answer(&mut helper, end.min(Instant::now() + START)));
        let (gate, finding) = of_gate(tried);
        checks.push(finding);
        let not_tried = || Effect::inconclusive("not tried");
        let mut proofs = Proofs {
            attached: Err("not tried".to_owned()),
            waits: not_tried(),
            gate,
            groups: Err("not tried".to_owned()),
            is_shared,
            stops: not_tried(),
            slices: not_tried(),
        };
        checks.extend(program_checks::examine(&workspace, library, end, &mut proofs));
        finding::decide(&proofs)
    };
    Ok(Report::new(checks, level, reported, begin.elapsed().as_secs_f64()))
}

/// Asks the driver and NVML, in a process of its own.
fn ask(workspace: &Workspace, end: Instant) -> anyhow::Result<Reported> {
    let mut helper = workspace.helper("facts", &["facts"])?;
    Ok(answer(&mut helper, end.min(Instant::now() + START)).unwrap_or_else(|why| Reported {
        driver: Err(format!("{why:#}")),
        nvml: Err("not asked".to_owned()),
    }))
}

/// The loaded driver. NVML is asked first, because a container's /sys need not show the module.
fn driver(reported: &Reported, simulated: bool) -> DriverVersion {
    match &reported.nvml {
        Ok(nvml) => DriverVersion::of_version(&nvml.driver),
        Err(_) if simulated => DriverVersion::NotVisible,
        Err(_) => DriverVersion::loaded(),
    }
}

/// The result of the stream gate test and its finding, also of a test without a context or an answer.
fn of_gate(tried: anyhow::Result<Result<StreamGateResult, String>>) -> (Result<(), String>, Finding) {
    let of = |status, found: &str, next| Finding::of("memory_ops", status, found, next);
    let outcome = match tried {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(why)) => {
            let finding = of(CheckStatus::Broken, &format!("no context: {why}"), DRIVER);
            return (Err(why), finding);
        }
        Err(why) => {
            let found = Effect::inconclusive(format!("{why:#}")).to_string();
            return (
                Err(format!("memory operations: {found}")),
                of(CheckStatus::Inconclusive, &found, AGAIN),
            );
        }
    };
    let found = describe(&outcome);
    let next = match &outcome {
        StreamGateResult::Works => return (Ok(()), Finding::ok("memory_ops", found)),
        StreamGateResult::Refused { .. } => MEMORY_OPS,
        StreamGateResult::DoesNotWait | StreamGateResult::NotReleased => REPORT_IT,
    };
    (Err(format!("memory operations: {found}")), of(CheckStatus::Degraded, found, next))
}

fn describe(outcome: &StreamGateResult) -> &str {
    match outcome {
        StreamGateResult::Works => "a stream waited for a word and was released by the host's store",
        StreamGateResult::Refused { why } => why,
        StreamGateResult::DoesNotWait => "a stream that waits for a word went on without it",
        StreamGateResult::NotReleased => {
            "a stream that waits for a word did not resume after the host's store"
        }
    }
}

#[cfg(test)]
mod tests;
