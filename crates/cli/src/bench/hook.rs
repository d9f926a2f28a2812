//! `sluice bench hook`: what the hook adds to a launch, bare and hooked side by side in one process, under real grants.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;

use super::Common;
use super::figures::{Spread, median};
use super::launches::{self, Launches};
use super::requests::{self, Requests};
use super::syscalls::Tracer;
use crate::signals::Interrupts;
use crate::stage::Stage;
use crate::supervise::{Line, Process};

/// Name of the client.
const CLIENT: &str = "bench";
/// How long a worker may take.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What was measured.
#[derive(Debug, Serialize)]
pub(crate) struct HookFigures {
    gpu: String,
    /// One thread.
    #[serde(flatten)]
    one: Nanoseconds,
    threads16: Nanoseconds,
    /// System calls of the launching thread per hooked launch, seen by a tracer; absent where tracing is not permitted. The
    /// median of blocks, so that one in which the grant expired does not count.
    syscalls_per_launch: Option<f64>,
    /// The same of bare launches: what the driver itself does.
    bare_syscalls_per_launch: Option<f64>,
    /// The calls of a latency-critical request, each the first of its kind since the GPU was idle.
    request: Requests,
}

#[derive(Debug, Serialize)]
struct Nanoseconds {
    bare_ns: Spread,
    hooked_ns: Spread,
    added_ns: Spread,
    /// Bare against bare.
    noise_ns: f64,
    samples: usize,
}

/// Measures and tells people.
pub(crate) fn measure(common: &Common, interrupts: &Interrupts) -> anyhow::Result<HookFigures> {
    let stage = Stage::build(common.setting(&[(CLIENT, 1.0, 1.0, 8 << 30)]), || interrupts.pause())?;
    let one = worker(&stage, &["--rounds", "400"], interrupts)?;
    let many = worker(&stage, &["--rounds", "60", "--threads", "16"], interrupts)?;
    let calls = |side| match count_calls(&stage, side, interrupts) {
        Ok(calls) => Some(calls),
        Err(why) => {
            eprintln!("system calls not counted: {why:#}");
            None
        }
    };
    let figures = HookFigures {
        gpu: one.device.clone(),
        syscalls_per_launch: calls("hooked"),
        bare_syscalls_per_launch: calls("bare"),
        one: one.into(),
        threads16: many.into(),
        request: requests::measure(common, interrupts)?,
    };
    figures.tell()?;
    requests::tell(&figures.request)?;
    Ok(figures)
}

impl From<Launches> for Nanoseconds {
    fn from(launches: Launches) -> Self {
        let Launches { bare_ns, hooked_ns, added_ns, noise_ns, samples, .. } = launches;
        Self { bare_ns, hooked_ns, added_ns, noise_ns, samples }
    }
}

impl HookFigures {
    fn tell(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "time per launch on {}, ns        p50      p99", self.gpu)?;
        for (threads, ns) in [("1 thread", &self.one), ("16 threads", &self.threads16)] {
            for (what, spread) in [("bare", ns.bare_ns), ("hooked", ns.hooked_ns), ("added", ns.added_ns)] {
                writeln!(out, "  {threads:10}  {what:20} {:10.1} {:10.1}", spread.p50, spread.p99)?;
            }
            writeln!(out, "  {threads:10}  {:20} {:10.1}", "bare against bare", ns.noise_ns)?;
        }
        let calls =
            |calls: Option<f64>| calls.map_or("not counted".to_owned(), |calls| format!("{calls:.4}"));
        writeln!(
            out,
            "  system calls per launch: hooked {}, bare {}",
            calls(self.syscalls_per_launch),
            calls(self.bare_syscalls_per_launch)
        )
    }
}

fn start(stage: &Stage, flags: &[&str]) -> anyhow::Result<(Process, Receiver<Line>)> {
    let (sender, lines) = channel();
    let mut command = stage.program();
    command.args(["bench", "hook-worker", "--hook"]).arg(stage.hook()).args(flags);
    stage.show_gpu(&mut command, CLIENT);
    stage.show_manager(&mut command, CLIENT);
    Ok((stage.start("hook-worker", command, Some(sender))?, lines))
}

fn worker(stage: &Stage, flags: &[&str], interrupts: &Interrupts) -> anyhow::Result<Launches> {
    let (mut process, lines) = start(stage, flags)?;
    let line = next_line(&mut process, &lines, interrupts)?;
    serde_json::from_str(&line.text).with_context(|| format!("the worker said: {}", line.text))
}

/// The next line that a worker prints.
pub(super) fn next_line(
    process: &mut Process,
    lines: &Receiver<Line>,
    interrupts: &Interrupts,
) -> anyhow::Result<Line> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        interrupts.check()?;
        if let Ok(line) = lines.recv_timeout(LOOK_EVERY) {
            return Ok(line);
        }
        if let Err(ended) = process.check_running() {
            // It may have said its line and ended since we looked.
            return lines.recv_timeout(LOOK_EVERY).map_err(|_| ended);
        }
        if Instant::now() > deadline {
            bail!("{} does not answer{}", process.name(), process.log_tail());
        }
    }
}

fn count_calls(stage: &Stage, side: &str, interrupts: &Interrupts) -> anyhow::Result<f64> {
    let (mut process, lines) = start(stage, &["--counted", side])?;
    next_line(&mut process, &lines, interrupts)?;
    let tracer = Tracer::attach(process.pid())?;
    process.mark()?;
    let blocks = tracer.count(launches::COUNTED_BLOCKS)?;
    let calls = median(blocks.iter().map(|calls| *calls as f64).collect());
    Ok(calls / launches::block_length() as f64)
}
