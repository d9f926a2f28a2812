//! Test beds of the benchmarks, and the worker processes that this program starts of itself.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sluice_test_bed::{Artifacts, Interrupts, Process, TestBed, TestBedOptions, Worker};

/// How long a worker may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Starts a test bed with the `sluice` that lies beside this program. `pause` is called between two polls and may end the wait.
pub(super) fn start_bed(
    options: TestBedOptions,
    pause: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<TestBed> {
    let this = env::current_exe().context("cannot find this program's path")?;
    let sluice = this.with_file_name("sluice");
    if !sluice.is_file() {
        bail!("{} is missing: build it with `cargo xtask build`", sluice.display());
    }
    TestBed::start(Artifacts::beside(&sluice, options.simulated)?, options, pause)
}

/// `sluice-dev bench SUBCOMMAND` as a child of this process.
pub(super) fn worker_command(subcommand: &str) -> anyhow::Result<Command> {
    let this = env::current_exe().context("cannot find this program's path")?;
    let mut command = Process::command(&this);
    command.args(["bench", subcommand]);
    Ok(command)
}

/// A resource file of best-effort clients: (name, request, limit, memory in bytes).
pub(super) fn resource_file(clients: &[(&str, f64, f64, u64)]) -> String {
    let lines = clients.iter().map(|(name, request, limit, memory)| {
        format!("  - {{ name: {name}, request: {request}, limit: {limit}, memory: {memory} }}\n")
    });
    format!("clients:\n{}", lines.collect::<String>())
}

/// The next line of a worker.
pub(super) fn next_line(worker: &mut Worker, interrupts: &Interrupts) -> anyhow::Result<String> {
    worker.next_line(Instant::now() + ANSWER_TIMEOUT, || interrupts.check())
}

/// The next line of a worker, read as JSON.
pub(super) fn answer<T: serde::de::DeserializeOwned>(
    worker: &mut Worker,
    interrupts: &Interrupts,
) -> anyhow::Result<T> {
    worker.answer(Instant::now() + ANSWER_TIMEOUT, || interrupts.check())
}
