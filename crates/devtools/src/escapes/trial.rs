//! One attempt: its measurement and its verdict.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use sluice_sim::ledger::Ledger;
use sluice_test_bed::{Interrupts, Process};

use super::Arguments;
use super::attempts::{Attempt, MEMORY_LIMIT, Neighbour, Start};
use super::bed::{ATTEMPT, EscapeBed, NEIGHBOUR};
use super::outcome::{Row, Verdict};
use super::programs::Programs;

/// What is found later than this after the attempt does not count as detected.
const DETECTED_WITHIN: Duration = Duration::from_secs(1);
/// How long after the attempt the measurement begins, and if the process is searched, after it was found.
const SETTLED_AFTER: Duration = Duration::from_millis(1_500);
/// How long a search may take: a process that has mapped the hook has two seconds to attach.
const FOUND_WITHIN: Duration = Duration::from_millis(4_500);
/// How long the GPU's use is measured; not at all for an attempt that takes no GPU time.
const MEASURED: Duration = Duration::from_millis(1_500);
/// Share of the pod of the attempt, and how much more it may measure.
const ENTITLED: f64 = 0.3;
const TOLERANCE: f64 = 0.1;
/// The longest mean time that a latency-critical kernel may wait for the GPU: a context switch and two quanta of a busy machine.
const CRITICAL_WAIT_NS: u64 = 2_000_000;
/// Memory beyond the limit that counts as none: rounding of the driver.
const MEMORY_TOLERANCE: u64 = 2 << 20;

/// How often an attempt is made while its result is worse than expected. Other processes of a busy machine may take the 1.5 s in which its
/// share is measured. What is not blocked has a worse result each time.
const MOST_ATTEMPTS: u32 = 3;

/// Makes an attempt, again while its result is worse than expected. `None`: the program ended by itself before its attempt, because this
/// GPU's driver does not allow it.
pub(super) fn run(
    attempt: &Attempt,
    programs: &Programs,
    flags: &Arguments,
    interrupts: &Interrupts,
) -> anyhow::Result<Option<Row>> {
    until_expected(|number| run_once(attempt, number, programs, flags, interrupts))
}

/// The first row that is not worse than expected, of [`MOST_ATTEMPTS`] at most; else the last one. `make` gets the number of the row.
pub(super) fn until_expected(
    mut make: impl FnMut(u32) -> anyhow::Result<Option<Row>>,
) -> anyhow::Result<Option<Row>> {
    let mut row = make(1)?;
    for number in 2..=MOST_ATTEMPTS {
        if !row.as_ref().is_some_and(Row::is_worse) {
            break;
        }
        row = make(number)?;
    }
    Ok(row)
}

fn run_once(
    attempt: &Attempt,
    number: u32,
    programs: &Programs,
    flags: &Arguments,
    interrupts: &Interrupts,
) -> anyhow::Result<Option<Row>> {
    let (victim, program) = (programs.compiled("victim")?, programs.compiled(attempt.program)?);
    let node = EscapeBed::start(programs, attempt, &flags.manager, interrupts)?;
    let load: &[&str] = match attempt.neighbour {
        // 0.1 s of submitted work, so that a busy machine does not leave the GPU idle.
        Neighbour::Busy => &["2000", "50", "0", "count"],
        Neighbour::Critical => &["100", "1", "5", "count"],
    };
    let mut neighbour = node.process(2, NEIGHBOUR, &victim, load, Start::Hooked)?;
    node.wait_for_line(&mut neighbour, "ready")?;
    let alone = if node.is_simulated() { None } else { Some(rate(&node)?) };
    let mut hooked = (attempt.start == Start::Joining)
        .then(|| node.process(1, ATTEMPT, &program, attempt.arguments, Start::Hooked))
        .transpose()?;
    hooked.iter_mut().try_for_each(|hooked| node.wait_for_line(hooked, "attempt"))?;
    let mut process = node.process(1, ATTEMPT, &program, attempt.arguments, attempt.start)?;
    match node.wait_for_line(&mut process, "attempt") {
        Err(_) if !node.is_simulated() => return Ok(None),
        other => other?,
    }
    let measured = measure(attempt, &node, &mut process, alone, interrupts)?;
    let row = Row { attempts: number, ..measured };
    if let Some(logs) = flags.logs.as_ref().filter(|_| row.is_worse()) {
        node.copy_logs(&logs.join(format!("{}-{number}", attempt.name.replace(['/', ' '], "-"))))?;
    }
    Ok(Some(row))
}

/// Kernels a second that the neighbour completes.
fn rate(node: &EscapeBed) -> anyhow::Result<f64> {
    let (before, begun) = (node.neighbours_count()?, Instant::now());
    thread::sleep(MEASURED);
    Ok((node.neighbours_count()? - before) as f64 / begun.elapsed().as_secs_f64())
}

fn measure(
    attempt: &Attempt,
    node: &EscapeBed,
    process: &mut Process,
    alone: Option<f64>,
    interrupts: &Interrupts,
) -> anyhow::Result<Row> {
    let begun = Instant::now();
    let mut detected = None;
    let settled_after = |detected: Option<Duration>| match detected {
        _ if !attempt.is_searched => SETTLED_AFTER,
        Some(after) => after + SETTLED_AFTER,
        None => FOUND_WITHIN,
    };
    while begun.elapsed() < settled_after(detected) {
        if detected.is_none() && node.is_detected(1) {
            detected = Some(begun.elapsed());
        }
        interrupts.check()?;
        thread::sleep(Duration::from_millis(20));
    }
    let gain = match alone {
        None if attempt.is_of_memory => Gain::by_ledger(node, Duration::ZERO)?,
        None => Gain::by_ledger(node, MEASURED)?,
        // A real GPU has no ledger: what the neighbour lacks is the attempt's.
        Some(alone) => Gain { gpu_share: 1.0 - rate(node)? / alone.max(1.0), ..Gain::default() },
    };
    process.check_running()?;
    let Gain { gpu_share, critical_waited_ns, memory_bytes } = gain;
    let memory_over_bytes = memory_bytes.saturating_sub(MEMORY_LIMIT);
    let gained_time = match attempt.neighbour {
        Neighbour::Busy => gpu_share > ENTITLED + TOLERANCE,
        Neighbour::Critical => critical_waited_ns > CRITICAL_WAIT_NS,
    };
    let result = match detected {
        _ if !gained_time && memory_over_bytes <= MEMORY_TOLERANCE => Verdict::Blocked,
        Some(after) if after <= DETECTED_WITHIN => Verdict::Detected,
        _ => Verdict::Open,
    };
    Ok(Row {
        name: attempt.name,
        expect: attempt.expect,
        result,
        detected_ms: detected.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        gpu_share: (gpu_share * 1000.0).round() / 1000.0,
        memory_over_bytes,
        attempts: 1,
    })
}

/// What an attempt gained.
#[derive(Debug, Default)]
struct Gain {
    /// Part of the GPU's used time that its processes had.
    gpu_share: f64,
    /// Mean time that a kernel of the neighbour waited for the GPU.
    critical_waited_ns: u64,
    /// Device memory of its processes as NVML reports it.
    memory_bytes: u64,
}

impl Gain {
    /// What the simulator's ledger counts from now on.
    fn by_ledger(node: &EscapeBed, measured: Duration) -> anyhow::Result<Self> {
        let before = Counted::in_ledger(&node.gpu().ledger()?)?;
        thread::sleep(measured);
        let after = Counted::in_ledger(&node.gpu().ledger()?)?;
        let used = after.busy_ns - before.busy_ns;
        let kernels = after.kernels - before.kernels;
        Ok(Self {
            gpu_share: (after.attempt_ns - before.attempt_ns) as f64 / used.max(1) as f64,
            critical_waited_ns: (after.waited_ns - before.waited_ns) / kernels.max(1),
            memory_bytes: after.memory_bytes,
        })
    }
}

/// The GPU's counters that matter here.
struct Counted {
    busy_ns: u64,
    attempt_ns: u64,
    memory_bytes: u64,
    /// Waiting time and kernels of the neighbour.
    waited_ns: u64,
    kernels: u64,
}

impl Counted {
    fn in_ledger(ledger: &Ledger) -> anyhow::Result<Self> {
        let attempt = ledger.labels.get(ATTEMPT).context("the ledger has no row of the attempt")?;
        let processes = ledger.processes.iter().filter(|row| row.label == ATTEMPT && !row.ended);
        let neighbour = ledger.by_label(NEIGHBOUR).context("the ledger has no row of the neighbour")?;
        Ok(Self {
            busy_ns: ledger.gpu.busy_ns,
            attempt_ns: attempt.gpu_ns,
            memory_bytes: processes.map(|row| row.reported_bytes).sum(),
            waited_ns: neighbour.waited_ns,
            kernels: neighbour.kernels_completed,
        })
    }
}
