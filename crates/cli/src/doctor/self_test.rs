//! `sluice self-test`: proves the effects of a driver's controls on one GPU, once per driver, GPU and boot. The pod-manager reads the
//! result (`--self-test FILE`) and uses it instead of the driver's version.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use sluice_nvrm::self_test::{Effect, SelfTestResult, SelfTestSubject, UsableControls};

use super::program_checks;
use super::trials::Controls;
use super::workspace::Workspace;
use super::{ANNOUNCE, Gpu, START, ask, library};

/// Time limit of one attempt.
const LIMIT: Duration = Duration::from_secs(15);
/// Attempts while the result is inconclusive: on a busy machine the programs get too little processor time to keep the GPU busy.
const ATTEMPTS: u32 = 3;

/// Flags of `sluice self-test`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 channel groups can be disabled and sliced, 1 disabled only, 2 neither, or inconclusive."
)]
pub(crate) struct Arguments {
    /// The GPU of this machine, or the simulated GPU at SLUICE_SIM_SOCKET
    #[arg(long, value_enum, default_value_t = Gpu::Real)]
    gpu: Gpu,
    /// UUID of the GPU where there are several, as its driver spells it
    #[arg(long, value_name = "UUID")]
    gpu_uuid: Option<String>,
    /// The hook that is tested [default: libsluice.so beside this program]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// File for the result; a valid result in the file is not tested again
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Test even if the file has a valid result
    #[arg(long, requires = "write")]
    again: bool,
    /// Print the result as JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Tests the controls, or reads the result of an earlier test, and prints it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::new(arguments.gpu == Gpu::Sim)?.on(arguments.gpu_uuid.clone())?;
    let about = about(&workspace, Instant::now() + LIMIT)?;
    let kept = arguments.write.as_deref().filter(|_| !arguments.again).and_then(kept);
    let result = match kept.filter(|kept| kept.is_for(&about) && !kept.is_inconclusive()) {
        Some(kept) => kept,
        None => {
            let library = library(arguments.library.as_ref())?;
            let result =
                until_conclusive(|| test(&workspace, &library, about.clone(), Instant::now() + LIMIT));
            if let Some(path) = &arguments.write {
                keep(path, &result)
                    .with_context(|| format!("cannot write the result to {}", path.display()))?;
            }
            result
        }
    };
    print(&result, arguments.json)?;
    Ok(ExitCode::from(match result.usable_controls() {
        UsableControls::All => 0,
        UsableControls::DisableOnly => 1,
        UsableControls::NoControls => 2,
    }))
}

/// The driver, GPU and boot of this test.
fn about(workspace: &Workspace, end: Instant) -> anyhow::Result<SelfTestSubject> {
    let reported = ask(workspace, end)?;
    let facts = reported.driver.map_err(|why| anyhow!("the driver does not work: {why}"))?;
    let version = match reported.nvml {
        Ok(nvml) => nvml.driver,
        Err(why) if workspace.simulator().is_some() => bail!("NVML does not work: {why}"),
        Err(why) => fs::read_to_string(sluice_nvrm::VERSION_FILE)
            .with_context(|| format!("neither NVML ({why}) nor the kernel reports which driver this is"))?,
    };
    Ok(SelfTestSubject::now(version.trim(), &facts.uuid))
}

/// Repeats the test while it is inconclusive, [`ATTEMPTS`] times at most.
fn until_conclusive(mut attempt: impl FnMut() -> SelfTestResult) -> SelfTestResult {
    let mut result = attempt();
    for _ in 1..ATTEMPTS {
        if !result.is_inconclusive() {
            break;
        }
        result = attempt();
    }
    result
}

/// Tries the controls. A control that cannot be tried is inconclusive, so that it is tried again.
fn test(workspace: &Workspace, library: &Path, about: SelfTestSubject, end: Instant) -> SelfTestResult {
    let Controls { slices, stops, counts } = controls(workspace, library, end).unwrap_or_else(|why| {
        let why = Effect::inconclusive(format!("{why:#}"));
        Controls { slices: why.clone(), stops: why.clone(), counts: why }
    });
    SelfTestResult { about, slices, stops, counts }
}

fn controls(workspace: &Workspace, library: &Path, end: Instant) -> anyhow::Result<Controls> {
    let (mut trials, manager) = program_checks::begin(workspace, library, end)?;
    for busy in [&mut trials.first, &mut trials.second] {
        manager.release(busy.pid());
        busy.go()?;
    }
    let until = end.min(Instant::now() + ANNOUNCE);
    let [first, second] = [&trials.first, &trials.second].map(|busy| manager.groups(busy.pid(), until));
    if first.is_empty() || second.is_empty() {
        bail!("the hook announces no channel groups");
    }
    trials.both_run(end.min(Instant::now() + START))?;
    Ok(trials.controls(first, second))
}

/// The result in a file; `None` if it is unreadable.
fn kept(path: &Path) -> Option<SelfTestResult> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Writes the result by renaming: the pod-manager may read it at any time.
fn keep(path: &Path, result: &SelfTestResult) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(&mut file, result)?;
    file.write_all(b"\n")?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn print(result: &SelfTestResult, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(result)?)?;
    } else {
        let SelfTestResult { about, slices, stops, counts } = result;
        writeln!(out, "driver {}, {}, boot {}", about.driver, about.gpu, about.boot)?;
        for (control, effect) in
            [("SET_TIMESLICE", slices), ("DISABLE_CHANNELS", stops), ("GET_CTXSW_STATS", counts)]
        {
            writeln!(out, "{control:17} {effect}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
