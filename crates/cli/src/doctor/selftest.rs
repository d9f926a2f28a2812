//! `sluice self-test`: what a driver's controls do on one GPU, proven once per driver, GPU and boot. The pod-manager reads the
//! verdict (`--self-test FILE`) and believes it rather than the driver's version.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use sluice_nvrm::selftest::{About, Allows, Effect, Verdict};

use super::busy;
use super::examine::{self, ANNOUNCE, START};
use super::place::Place;
use super::trials::Controls;
use super::{Gpu, library};

/// One attempt ends by then.
const LIMIT: Duration = Duration::from_secs(15);
/// So often is tried what cannot be told: on a machine that does much else the programs get too little time to keep the GPU busy.
const ATTEMPTS: u32 = 3;

/// Flags of `sluice self-test`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 turns and slices can be built on the controls, 1 turns only, 2 nothing, or it cannot be told."
)]
pub(crate) struct Arguments {
    /// The GPU of this machine, or the simulated one of SLUICE_SIM_SOCKET
    #[arg(long, value_enum, default_value_t = Gpu::Real)]
    gpu: Gpu,
    /// Which GPU, where there are several, as its driver spells it
    #[arg(long, value_name = "UUID")]
    gpu_uuid: Option<String>,
    /// The library that programs are to be put under [default: libsluice.so beside this program]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// Keep the verdict here; one that is there already and still holds is not tried again
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Try all the same
    #[arg(long, requires = "write")]
    again: bool,
    /// The verdict as JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Tests, or finds that it was done before, and says what came of it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let place = Place::new(arguments.gpu == Gpu::Sim)?.on(arguments.gpu_uuid.clone())?;
    let about = about(&place, Instant::now() + LIMIT)?;
    let kept = arguments.write.as_deref().filter(|_| !arguments.again).and_then(kept);
    let verdict = match kept.filter(|kept| kept.is_about(&about) && !kept.is_inconclusive()) {
        Some(kept) => kept,
        None => {
            let library = library(arguments.library.as_ref())?;
            let verdict = until_told(|| test(&place, &library, about.clone(), Instant::now() + LIMIT));
            if let Some(path) = &arguments.write {
                keep(path, &verdict)
                    .with_context(|| format!("cannot keep the verdict at {}", path.display()))?;
            }
            verdict
        }
    };
    say(&verdict, arguments.json)?;
    Ok(ExitCode::from(match verdict.allows() {
        Allows::Everything => 0,
        Allows::Stops => 1,
        Allows::Nothing => 2,
    }))
}

/// Which driver and GPU this is.
fn about(place: &Place, end: Instant) -> anyhow::Result<About> {
    let said = examine::ask(place, end)?;
    let facts = said.driver.map_err(|why| anyhow!("the driver does not work: {why}"))?;
    let version = match said.nvml {
        Ok(nvml) => nvml.driver,
        Err(why) if place.simulator().is_some() => bail!("NVML does not work: {why}"),
        Err(why) => fs::read_to_string(sluice_nvrm::VERSION_FILE)
            .with_context(|| format!("neither NVML ({why}) nor the kernel says which driver this is"))?,
    };
    Ok(About::now(version.trim(), &facts.uuid))
}

/// Tries until it can be told, a few times at most.
fn until_told(mut attempt: impl FnMut() -> Verdict) -> Verdict {
    let mut verdict = attempt();
    for _ in 1..ATTEMPTS {
        if !verdict.is_inconclusive() {
            break;
        }
        verdict = attempt();
    }
    verdict
}

/// Tries the controls. What cannot be tried is inconclusive, so it is tried again another time.
fn test(place: &Place, library: &Path, about: About, end: Instant) -> Verdict {
    let Controls { slices, stops, counts } = controls(place, library, end).unwrap_or_else(|why| {
        let why = Effect::inconclusive(format!("{why:#}"));
        Controls { slices: why.clone(), stops: why.clone(), counts: why }
    });
    Verdict { about, slices, stops, counts }
}

fn controls(place: &Place, library: &Path, end: Instant) -> anyhow::Result<Controls> {
    let (mut trials, manager) = busy::begin(place, library, end)?;
    for busy in [&mut trials.first, &mut trials.second] {
        manager.release(busy.0.pid());
        busy.0.tell("go")?;
    }
    let until = end.min(Instant::now() + ANNOUNCE);
    let announced = [&trials.first, &trials.second].map(|busy| manager.groups(busy.0.pid(), until));
    let [first, second] = announced;
    if first.is_empty() || second.is_empty() {
        bail!("the hook announces no channel groups");
    }
    let until = end.min(Instant::now() + START);
    trials.both_run(until)?;
    Ok(trials.controls(first, second))
}

/// The verdict in a file; an unreadable one is none.
fn kept(path: &Path) -> Option<Verdict> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Whole or not at all: the pod-manager may read it at any time.
fn keep(path: &Path, verdict: &Verdict) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(&mut file, verdict)?;
    file.write_all(b"\n")?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn say(verdict: &Verdict, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(verdict)?)?;
    } else {
        let Verdict { about, slices, stops, counts } = verdict;
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
mod tests {
    use super::*;

    /// The verdict of attempts at slices that end so, and how many were made.
    fn tried(effects: &[Effect]) -> (Effect, usize) {
        let mut made = 0;
        let verdict = until_told(|| {
            let slices = effects[made].clone();
            made += 1;
            Verdict {
                about: About::now("580.1", "GPU-1"),
                slices,
                stops: Effect::Proven,
                counts: Effect::Proven,
            }
        });
        (verdict.slices, made)
    }

    #[test]
    fn what_cannot_be_told_is_tried_again_and_what_can_is_not() {
        let unclear = || Effect::inconclusive("few kernels");
        assert_eq!(tried(&[Effect::Proven]), (Effect::Proven, 1));
        assert_eq!(tried(&[Effect::NoEffect]), (Effect::NoEffect, 1));
        assert_eq!(tried(&[unclear(), unclear(), Effect::Proven]), (Effect::Proven, 3));
        assert_eq!(tried(&[unclear(), unclear(), unclear(), Effect::Proven]), (unclear(), 3));
    }
}
