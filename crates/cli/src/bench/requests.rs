//! What the hook adds to the calls of a latency-critical request, first calls after a pause all of them: a process under the hook and one
//! without take turns.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, channel};

use anyhow::Context;
use serde::Serialize;
use sluice_load::samples::Samples;

use super::Common;
use super::figures::{Spread, median};
use super::hook::next_line;
use super::request_worker::{BLOCK, Block, STEPS};
use super::syscalls::Tracer;
use crate::signals::Interrupts;
use crate::stage::{Setting, Stage};
use crate::supervise::{Line, Process};

/// Rounds of four blocks: bare, hooked, hooked, bare; with cold caches fewer, as clearing them takes milliseconds.
const ROUNDS: usize = 40;
const COLD_ROUNDS: usize = 10;
const CLIENT: &str = "service";

/// One call of a request.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    call: &'static str,
    bare_ns: Spread,
    hooked_ns: Spread,
    /// Difference of neighbouring blocks' medians, their median; in nanoseconds.
    added_ns: f64,
    /// The same of bare against bare.
    noise_ns: f64,
    /// System calls of the thread that makes the call, seen by a tracer, in the median; absent where tracing is not permitted.
    syscalls: Option<f64>,
    /// The same without the hook: what the driver itself does.
    bare_syscalls: Option<f64>,
}

/// Calls of requests that follow one another, and of requests before which the processor's caches were cleared.
#[derive(Debug, Serialize)]
pub(crate) struct Requests {
    warm: Vec<Step>,
    cold: Vec<Step>,
}

/// Measures on a stage of its own, whose client is latency-critical.
pub(crate) fn measure(common: &Common, interrupts: &Interrupts) -> anyhow::Result<Requests> {
    let resource_file = format!(
        "clients:\n  - {{ name: {CLIENT}, request: 0.5, limit: 1.0, memory: {}, class: latency-critical }}\n",
        8_u64 << 30
    );
    let setting = common.setting(&[]);
    let controls = if setting.simulated { "--controls=simulated" } else { "--controls=auto" };
    let setting = Setting { resource_file, manager_flags: vec![controls.to_owned()], ..setting };
    let stage = Stage::build(setting, || interrupts.pause())?;
    let [bare_calls, calls] = [false, true].map(|hooked| count(&stage, hooked, interrupts));
    let steps = |flags: &[&str], rounds| -> anyhow::Result<Vec<Step>> {
        let (all, medians) = time(&stage, flags, rounds, interrupts)?;
        let step = |step| Step::of(step, &all, &medians, &[bare_calls, calls]);
        Ok((0..STEPS.len()).map(step).collect())
    };
    Ok(Requests { warm: steps(&[], ROUNDS)?, cold: steps(&["--cold"], COLD_ROUNDS)? })
}

/// Nanoseconds of each step, bare and hooked.
type Times = [[Vec<u64>; STEPS.len()]; 2];
/// Of a round: each step's median in each of the four blocks.
type Medians = [[f64; 4]; STEPS.len()];

fn time(
    stage: &Stage,
    flags: &[&str],
    rounds: usize,
    interrupts: &Interrupts,
) -> anyhow::Result<(Times, Vec<Medians>)> {
    let mut sides =
        [Side::start(stage, false, flags, interrupts)?, Side::start(stage, true, flags, interrupts)?];
    let (mut all, mut seen) = (Times::default(), Vec::new());
    for _ in 0..rounds {
        let mut medians = Medians::default();
        for (place, hooked) in [0, 1, 1, 0].into_iter().enumerate() {
            let block = sides[hooked].block(interrupts)?;
            for (step, ns) in block.ns.into_iter().enumerate() {
                medians[step][place] = median(ns.iter().map(|ns| *ns as f64).collect());
                all[hooked][step].extend(ns);
            }
        }
        seen.push(medians);
    }
    Ok((all, seen))
}

impl Step {
    fn of(step: usize, all: &Times, rounds: &[Medians], calls: &[Option<[f64; STEPS.len()]>; 2]) -> Self {
        let spread = |hooked: usize| Spread::of(&all[hooked][step].iter().copied().collect::<Samples>(), 1.0);
        let of = |difference: fn([f64; 4]) -> f64| {
            median(rounds.iter().map(|medians| difference(medians[step])).collect())
        };
        let [bare_syscalls, syscalls] = calls.map(|calls| calls.map(|calls| calls[step]));
        Self {
            call: STEPS[step],
            bare_ns: spread(0),
            hooked_ns: spread(1),
            added_ns: of(|[a, b, c, d]| f64::midpoint(b - a, c - d)),
            noise_ns: of(|[a, _, _, d]| d - a),
            syscalls,
            bare_syscalls,
        }
    }
}

/// Tells people.
pub(crate) fn tell(requests: &Requests) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (steps, when) in
        [(&requests.warm, "one after another"), (&requests.cold, "caches cleared before each")]
    {
        writeln!(
            out,
            "{:38} {:>10} {:>12} {:>8} {:>8}   system calls (bare)",
            format!("requests {when}, ns"),
            "bare p50",
            "hooked p50",
            "added",
            "noise"
        )?;
        for step in steps {
            let Step { call, bare_ns, hooked_ns, added_ns, noise_ns, syscalls, bare_syscalls } = step;
            let [calls, bare_calls] = [syscalls, bare_syscalls]
                .map(|calls| calls.map_or("?".to_owned(), |calls| format!("{calls:.0}")));
            let (bare, hooked) = (bare_ns.p50, hooked_ns.p50);
            writeln!(
                out,
                "  {call:36} {bare:10.0} {hooked:12.0} {added_ns:8.0} {noise_ns:8.0}   {calls} ({bare_calls})"
            )?;
        }
    }
    Ok(())
}

/// A process that serves.
struct Side {
    process: Process,
    lines: Receiver<Line>,
}

impl Side {
    fn start(stage: &Stage, hooked: bool, flags: &[&str], interrupts: &Interrupts) -> anyhow::Result<Self> {
        let (sender, lines) = channel();
        let mut command = stage.program();
        command.args(["bench", "request-worker"]).args(flags);
        stage.show_gpu(&mut command, CLIENT);
        if hooked {
            stage.preload(&mut command, CLIENT);
        }
        let name = if hooked { "hooked-requests" } else { "bare-requests" };
        let mut process = stage.start(name, command, Some(sender))?;
        next_line(&mut process, &lines, interrupts)?;
        Ok(Self { process, lines })
    }

    fn block(&mut self, interrupts: &Interrupts) -> anyhow::Result<Block> {
        self.process.tell("block")?;
        let line = next_line(&mut self.process, &self.lines, interrupts)?;
        serde_json::from_str(&line.text).with_context(|| format!("the worker said: {}", line.text))
    }
}

/// System calls of each step in the median, if they can be counted.
fn count(stage: &Stage, hooked: bool, interrupts: &Interrupts) -> Option<[f64; STEPS.len()]> {
    let counted = || -> anyhow::Result<Vec<u64>> {
        let mut side = Side::start(stage, hooked, &["--counted"], interrupts)?;
        let tracer = Tracer::attach(side.process.pid())?;
        side.process.tell("block")?;
        tracer.count(BLOCK * STEPS.len())
    };
    let blocks = counted().map_err(|why| eprintln!("system calls not counted: {why:#}")).ok()?;
    Some(std::array::from_fn(|step| {
        median(blocks.iter().skip(step).step_by(STEPS.len()).map(|calls| *calls as f64).collect())
    }))
}
