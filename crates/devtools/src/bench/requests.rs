//! What the hook adds to the calls of a latency-critical request. Each call is the first of its kind after a pause. A process under
//! the hook and a process without it are measured alternately.

use std::io::{self, Write};

use serde::Serialize;
use sluice_load::samples::Samples;

use super::request_worker::{BLOCK, Block, STEPS};
use super::syscall_tracer::SyscallTracer;
use super::{Common, Percentiles, answer, median, next_line, start_bed, worker_command};
use sluice_test_bed::{Interrupts, TestBed, TestBedOptions, Worker};

/// Rounds of four blocks: bare, hooked, hooked, bare. Cold caches have fewer rounds, because clearing them takes milliseconds.
const ROUNDS: usize = 40;
const COLD_ROUNDS: usize = 10;
const CLIENT: &str = "service";

/// One call of a request.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    call: &'static str,
    bare_ns: Percentiles,
    hooked_ns: Percentiles,
    /// Median of the differences between neighbouring blocks' medians, nanoseconds.
    added_ns: f64,
    /// The same between bare blocks.
    noise_ns: f64,
    /// Median number of system calls of the calling thread, counted by a tracer; absent where tracing is not permitted.
    syscalls: Option<f64>,
    /// The same without the hook: the driver's own system calls.
    bare_syscalls: Option<f64>,
}

/// Calls of requests that follow one another, and of requests with cleared processor caches.
#[derive(Debug, Serialize)]
pub(crate) struct Requests {
    warm: Vec<Step>,
    cold: Vec<Step>,
}

/// Measures on a test bed of its own with a latency-critical client.
pub(crate) fn measure(common: &Common, interrupts: &Interrupts) -> anyhow::Result<Requests> {
    let resource_file = format!(
        "clients:\n  - {{ name: {CLIENT}, request: 0.5, limit: 1.0, memory: {}, class: latency-critical }}\n",
        8_u64 << 30
    );
    let options = common.options(&[]);
    let controls = if options.simulated { "--controls=simulated" } else { "--controls=auto" };
    let options = TestBedOptions { resource_file, manager_flags: vec![controls.to_owned()], ..options };
    let bed = start_bed(options, || interrupts.pause())?;
    let [bare_calls, calls] = [false, true].map(|hooked| count(&bed, hooked, interrupts));
    let steps = |flags: &[&str], rounds| -> anyhow::Result<Vec<Step>> {
        let (all, medians) = time(&bed, flags, rounds, interrupts)?;
        let step = |step| Step::of(step, &all, &medians, &[bare_calls, calls]);
        Ok((0..STEPS.len()).map(step).collect())
    };
    Ok(Requests { warm: steps(&[], ROUNDS)?, cold: steps(&["--cold"], COLD_ROUNDS)? })
}

/// Nanoseconds of each step, bare and hooked.
type Times = [[Vec<u64>; STEPS.len()]; 2];
/// Each step's median in each of a round's four blocks.
type Medians = [[f64; 4]; STEPS.len()];

fn time(
    bed: &TestBed,
    flags: &[&str],
    rounds: usize,
    interrupts: &Interrupts,
) -> anyhow::Result<(Times, Vec<Medians>)> {
    let mut sides = [start(bed, false, flags, interrupts)?, start(bed, true, flags, interrupts)?];
    let (mut all, mut seen) = (Times::default(), Vec::new());
    for _ in 0..rounds {
        let mut medians = Medians::default();
        for (place, hooked) in [0, 1, 1, 0].into_iter().enumerate() {
            sides[hooked].process.send_line("block")?;
            let block: Block = answer(&mut sides[hooked], interrupts)?;
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
        let percentiles =
            |hooked: usize| Percentiles::of(&all[hooked][step].iter().copied().collect::<Samples>(), 1.0);
        let of = |difference: fn([f64; 4]) -> f64| {
            median(rounds.iter().map(|medians| difference(medians[step])).collect())
        };
        let [bare_syscalls, syscalls] = calls.map(|calls| calls.map(|calls| calls[step]));
        Self {
            call: STEPS[step],
            bare_ns: percentiles(0),
            hooked_ns: percentiles(1),
            added_ns: of(|[a, b, c, d]| f64::midpoint(b - a, c - d)),
            noise_ns: of(|[a, _, _, d]| d - a),
            syscalls,
            bare_syscalls,
        }
    }
}

pub(crate) fn print(requests: &Requests) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (steps, when) in
        [(&requests.warm, "one after another"), (&requests.cold, "caches cleared before each")]
    {
        let title = format!("requests {when}, ns");
        writeln!(out, "{title:38}   bare p50   hooked p50    added    noise   system calls (bare)")?;
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

/// A process that serves requests, with or without the hook.
fn start(bed: &TestBed, hooked: bool, flags: &[&str], interrupts: &Interrupts) -> anyhow::Result<Worker> {
    let mut command = worker_command("request-worker")?;
    command.args(flags);
    bed.set_gpu(&mut command, CLIENT);
    if hooked {
        bed.set_hook(&mut command, CLIENT);
    }
    let name = if hooked { "hooked-requests" } else { "bare-requests" };
    let mut worker = Worker::start(name, command, bed.path())?;
    next_line(&mut worker, interrupts)?;
    Ok(worker)
}

/// Median number of system calls of each step, if they can be counted.
fn count(bed: &TestBed, hooked: bool, interrupts: &Interrupts) -> Option<[f64; STEPS.len()]> {
    let counted = || -> anyhow::Result<Vec<u64>> {
        let mut worker = start(bed, hooked, &["--counted"], interrupts)?;
        let tracer = SyscallTracer::attach(worker.process.pid())?;
        worker.process.send_line("block")?;
        tracer.count(BLOCK * STEPS.len())
    };
    let blocks = counted().map_err(|why| eprintln!("system calls not counted: {why:#}")).ok()?;
    Some(std::array::from_fn(|step| {
        median(blocks.iter().skip(step).step_by(STEPS.len()).map(|calls| *calls as f64).collect())
    }))
}
