//! The worker: the process that makes the controls. It releases all processes when its input ends, when the time is over and after
//! every error.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use sluice_load::checkpoint;
use sluice_load::driver::Driver;
use sluice_load::record::write_line;

use super::process_groups::{ProcessGroups, Releasable, ReleaseGuard, find, read_newest_client};
use super::stopped_process::StoppedProcess;
use super::{Arguments, watch_input_end};

/// Interval at which the end is checked.
const CHECK_EVERY: Duration = Duration::from_millis(2);

/// The conditions that end the worker.
struct End {
    at: Option<Instant>,
    input_has_ended: Arc<AtomicBool>,
}

/// Stops one process, or gives several processes quanta, until the end.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let input_has_ended = watch_input_end();
    let after =
        arguments.seconds.map(Duration::try_from_secs_f64).transpose().context("--seconds is not a time")?;
    let end = End { at: after.map(|after| Instant::now() + after), input_has_ended };
    match arguments.pids.as_slice() {
        [pid] if arguments.shares.is_empty() => stop_one(*pid, arguments, &end),
        pids => give_quanta(pids, arguments, &end),
    }
}

/// Releases processes that an earlier command left stopped.
pub(super) fn release(pids: &[i32], simulated: bool) -> anyhow::Result<()> {
    let newest_client = read_newest_client(simulated);
    let mut failed = Vec::new();
    for pid in pids {
        let enabled = find(*pid, simulated, newest_client).and_then(|found| Ok(found.start()?));
        let unlocked = Driver::open().and_then(|driver| checkpoint::unlock(&driver, *pid));
        match (enabled, unlocked) {
            (Err(groups), Err(lock)) => failed.push(format!("process {pid}: {groups:#}; {lock}")),
            _ => print_line(&json!({ "hold": "released", "pid": pid }))?,
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!(failed.join("\n")) }
}

fn stop_one(pid: i32, arguments: &Arguments, end: &End) -> anyhow::Result<()> {
    let mut process = StoppedProcess::stop(pid, arguments)?;
    let mut result = print_line(&process.describe());
    while result.is_ok() && !end.is_reached() && !process.has_ended() {
        thread::sleep(CHECK_EVERY);
        result = process.search_again();
    }
    let has_ended = process.has_ended();
    process.release()?;
    if !has_ended {
        result?;
    }
    print_line(&json!({ "hold": if has_ended { "gone" } else { "released" }, "pid": pid }))
}

fn give_quanta(pids: &[i32], arguments: &Arguments, end: &End) -> anyhow::Result<()> {
    let found: anyhow::Result<Vec<_>> =
        pids.iter().map(|pid| ProcessGroups::find(*pid, arguments.simulated)).collect();
    let mut processes = ReleaseGuard(found?);
    let mut schedule = QuantumSchedule::new(&arguments.shares);
    let (mut running, mut quantum) = schedule.next();
    for (index, process) in processes.0.iter_mut().enumerate() {
        if index != running {
            process.stop().with_context(|| format!("process {}", process.pid()))?;
        }
    }
    print_line(&json!({ "hold": "turns", "pids": pids, "shares": arguments.shares }))?;
    let mut hand_offs = 0_u64;
    let mut since = Instant::now();
    while !end.is_reached() {
        thread::sleep(quantum.min(end.remaining()));
        if processes.0.iter().any(ProcessGroups::has_ended) {
            break;
        }
        for process in &mut processes.0 {
            process.search_again()?;
        }
        schedule.add(running, since.elapsed());
        let (next, next_quantum) = schedule.next();
        since = Instant::now();
        quantum = next_quantum;
        if next != running {
            // The one process is stopped before the other is started, so that they never run together.
            let Ok([from, to]) = processes.0.get_disjoint_mut([running, next]) else {
                bail!("no process has index {running} or {next}")
            };
            from.stop().with_context(|| format!("process {}", from.pid()))?;
            schedule.add(running, since.elapsed());
            to.start().with_context(|| format!("process {}", to.pid()))?;
            since = Instant::now();
            hand_offs += 1;
            running = next;
        }
    }
    let times: Vec<f64> = schedule.times().map(|time| time.as_secs_f64()).collect();
    processes.release()?;
    print_line(&json!({ "hold": "released", "pids": pids, "seconds": times, "handovers": hand_offs }))
}

impl End {
    fn is_reached(&self) -> bool {
        self.input_has_ended.load(Ordering::Acquire) || self.at.is_some_and(|at| Instant::now() >= at)
    }

    fn remaining(&self) -> Duration {
        self.at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }
}

fn print_line(line: &Value) -> anyhow::Result<()> {
    Ok(write_line(line, &mut io::stdout().lock())?)
}

/// The time of one cycle through all shares. Quanta of 30 to 100 ms cost a few percent (`docs/reference/gpu.md` §13).
const CYCLE: Duration = Duration::from_millis(150);
/// The shortest quantum. A shorter one would not be worth its controls.
const MIN_QUANTUM: Duration = Duration::from_millis(15);

/// The order and length of the quanta of processes that are always busy, so that times are in proportion to shares whatever time the
/// controls take.
#[derive(Debug)]
struct QuantumSchedule {
    /// Share of each process, and the time that it has had.
    processes: Vec<(u32, Duration)>,
}

impl QuantumSchedule {
    fn new(shares: &[u32]) -> Self {
        Self { processes: shares.iter().map(|share| (*share, Duration::ZERO)).collect() }
    }

    /// The process that is furthest behind its share, and its quantum: until it is one cycle's share ahead of the present.
    fn next(&self) -> (usize, Duration) {
        let shares: u32 = self.processes.iter().map(|(share, _)| share).sum();
        let total: Duration = self.processes.iter().map(|(_, time)| *time).sum();
        let entitled = |share: u32| (total + CYCLE) * share / shares.max(1);
        let lag = |(share, time): &(u32, Duration)| {
            entitled(*share).saturating_sub(*time).as_secs_f64() / f64::from(*share)
        };
        let furthest_behind =
            self.processes.iter().enumerate().max_by(|(_, a), (_, b)| lag(a).total_cmp(&lag(b)));
        furthest_behind.map_or((0, CYCLE), |(index, (share, time))| {
            (index, entitled(*share).saturating_sub(*time).max(MIN_QUANTUM))
        })
    }

    /// Adds time in which a process ran.
    fn add(&mut self, index: usize, time: Duration) {
        if let Some((_, total)) = self.processes.get_mut(index) {
            *total += time;
        }
    }

    /// The time that each process has had.
    fn times(&self) -> impl Iterator<Item = Duration> {
        self.processes.iter().map(|(_, time)| *time)
    }
}

#[cfg(test)]
mod tests;
