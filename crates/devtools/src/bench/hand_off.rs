//! `sluice-dev bench hand-off`: time from the end of one client's grant until the launch of the next client passes.
//!
//! Two processes under the hook launch short kernels and wait for each, all the time, so the token passes between them at each deadline.
//! A hand-off begins when a launch of the holder finds the grant ended: its GPU work is done, because it has waited for it. It ends when
//! the other process's launch call returns, which has waited since that process's own grant ended. Arms differ in flags of the manager.
//! Their blocks alternate, each with fresh processes and a pod-manager of its own.

mod cpu;
pub(super) mod program;
mod steps;

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use sluice_comm::HAND_OFF_STEPS;
use sluice_load::samples::{Quantiles, Samples};
use sluice_sys::step_log::StepLog;
use sluice_test_bed::{Interrupts, TestBed, Worker};

use super::{Common, provenance, start_bed, worker_command};
use cpu::cpu_ns_of_process;
use program::{Stamps, Wait};
use steps::{Steps, StepsFigures};

const CLIENTS: [&str; 2] = ["hand-off-a", "hand-off-b"];
/// How long the processes of a block may take to start and to end, beside the time that they launch for.
const MARGIN: Duration = Duration::from_secs(30);

/// Flags of the benchmark.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// How long all arms together are measured
    #[arg(long, default_value_t = 70.0)]
    seconds: f64,
    /// How long the processes of a block launch
    #[arg(long, default_value_t = 3.0)]
    block_seconds: f64,
    /// Length of all grants
    #[arg(long, default_value_t = 50)]
    grant_ms: u32,
    /// Iterations of the kernels: 5000 take 10 µs on an H200
    #[arg(long, default_value_t = 5000)]
    iterations: u32,
}

/// One variant of the manager, which tells the hooks whether to poll.
#[derive(Debug)]
struct Arm {
    name: &'static str,
    manager_flags: &'static [&'static str],
    /// `SLUICE_BUSY_POLL_US` of the hooks, so that they poll on a machine of any size.
    hook_polling_us: &'static str,
}

const ARMS: [Arm; 2] = [
    Arm { name: "parked", manager_flags: &["--busy-poll-ms", "0"], hook_polling_us: "0" },
    Arm { name: "polling", manager_flags: &["--busy-poll-ms", "0.125"], hook_polling_us: "125" },
];

/// What was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    commit: String,
    date: String,
    machine: String,
    gpu: String,
    grant_ms: u32,
    arms: Vec<ArmFigures>,
}

/// Figures of one arm.
#[derive(Debug, Serialize)]
struct ArmFigures {
    name: &'static str,
    blocks: usize,
    hand_offs: usize,
    hand_off_us: Quantiles,
    /// Medians of the blocks.
    block_p50_us: Vec<f64>,
    /// Parts of a core.
    cores: Cores,
    steps: Option<StepsFigures>,
}

/// CPU time as part of a core.
#[derive(Debug, Default, Serialize)]
struct Cores {
    manager: f64,
    /// The launching thread of a client, while a launch waits for the token.
    waiting_launch: f64,
    /// The hook's tracker of a client.
    tracker: f64,
}

/// One arm, while it is measured.
struct Measured {
    arm: &'static Arm,
    bed: TestBed,
    hand_offs: Vec<Vec<u64>>,
    seconds: f64,
    manager_ns: u64,
    waiting_ns: u64,
    tracker_ns: u64,
    step_log: StepLog,
    /// Keeps the path of the record that the processes open.
    _step_file: OwnedFd,
    steps: Steps,
}

/// Measures and prints the figures.
pub(crate) fn measure(arguments: &Arguments, interrupts: &Interrupts) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut measured = ARMS
        .iter()
        .map(|arm| Measured::start(arm, arguments, interrupts))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut gpu = String::new();
    let mut number = 0;
    while begun.elapsed().as_secs_f64() < arguments.seconds {
        let count = measured.len();
        for place in 0..count {
            // Each round begins with another arm, and every second one is reversed.
            let place = (place + number / 2) % count;
            let place = if number % 2 == 0 { place } else { count - 1 - place };
            gpu = measured[place].block(arguments, interrupts)?;
        }
        number += 1;
    }
    let figures = Figures {
        commit: provenance::commit(),
        date: provenance::date(),
        machine: provenance::machine(),
        gpu,
        grant_ms: arguments.grant_ms,
        arms: measured.into_iter().map(Measured::figures).collect(),
    };
    figures.print()?;
    arguments.common.publish(&figures)
}

impl Measured {
    fn start(arm: &'static Arm, arguments: &Arguments, interrupts: &Interrupts) -> anyhow::Result<Self> {
        let mut options = arguments.common.options(&CLIENTS.map(|name| (name, 0.5, 1.0, 4 << 30)));
        for flag in ["--base-quota-ms", "--min-quota-ms", "--max-quota-ms"] {
            options.manager_flags.extend([flag.to_owned(), arguments.grant_ms.to_string()]);
        }
        options.manager_flags.extend(["--controls", "off"].map(str::to_owned));
        options.manager_flags.extend(arm.manager_flags.iter().map(|flag| (*flag).to_owned()));
        let (step_log, step_file) = StepLog::create().context("cannot make the record of steps")?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), step_file.as_raw_fd());
        options.environment.push((HAND_OFF_STEPS, path));
        options.environment.push(("SLUICE_BUSY_POLL_US", arm.hook_polling_us.to_owned()));
        let bed = start_bed(options, || interrupts.pause())?;
        let hand_offs = Vec::new();
        Ok(Self {
            arm,
            bed,
            hand_offs,
            seconds: 0.0,
            manager_ns: 0,
            waiting_ns: 0,
            tracker_ns: 0,
            step_log,
            _step_file: step_file,
            steps: Steps::default(),
        })
    }

    /// Lets two fresh processes pass the token to each other. Returns the device's name.
    fn block(&mut self, arguments: &Arguments, interrupts: &Interrupts) -> anyhow::Result<String> {
        let mut workers = CLIENTS
            .into_iter()
            .map(|name| self.client(name, arguments))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let end = Instant::now() + Duration::from_secs_f64(arguments.block_seconds) + MARGIN;
        for worker in &mut workers {
            worker.next_line(end, || interrupts.check()).context("a client does not get ready")?;
        }
        let manager = self.bed.manager_pid().context("there is no pod-manager")?;
        let (cpu_before, begun) = (cpu_ns_of_process(manager)?, Instant::now());
        self.step_log.take();
        workers.iter_mut().try_for_each(|worker| worker.process.send_line("go"))?;
        let mut stamps = Vec::new();
        for worker in &mut workers {
            stamps.push(worker.answer::<Stamps>(end, || interrupts.check())?);
        }
        self.manager_ns += cpu_ns_of_process(manager)?.saturating_sub(cpu_before);
        self.seconds += begun.elapsed().as_secs_f64();
        let [first, second] = stamps.as_slice() else { bail!("two clients have {} records", stamps.len()) };
        let both = hand_offs(&first.waits, &second.waits).chain(hand_offs(&second.waits, &first.waits));
        let both: Vec<(u64, u64)> = both.collect();
        if both.is_empty() {
            bail!("the token was never handed over while a client waited");
        }
        let recorded = self.step_log.take();
        both.iter().for_each(|hand_off| self.steps.add(&recorded, *hand_off));
        self.hand_offs.push(both.into_iter().map(|(begin, end)| end - begin).collect());
        self.waiting_ns += stamps.iter().map(|stamps| stamps.waiting_cpu_ns).sum::<u64>();
        self.tracker_ns += stamps.iter().map(|stamps| stamps.tracker_cpu_ns).sum::<u64>();
        Ok(stamps[0].device.clone())
    }

    fn client(&self, name: &str, arguments: &Arguments) -> anyhow::Result<Worker> {
        let mut command = worker_command("hand-off-program")?;
        self.bed.set_gpu(&mut command, name);
        self.bed.set_hook(&mut command, name);
        command.args(["--seconds", &arguments.block_seconds.to_string()]);
        command.args(["--iterations", &arguments.iterations.to_string()]);
        Worker::start(name, command, self.bed.path())
    }

    fn figures(self) -> ArmFigures {
        let of_block = |ns: &Vec<u64>| ns.iter().copied().collect::<Samples>().quantiles().p50;
        let block_p50_us = self.hand_offs.iter().map(of_block).collect();
        let blocks = self.hand_offs.len();
        let all: Samples = self.hand_offs.into_iter().flatten().collect();
        let cores = |ns: u64, threads: f64| ns as f64 / 1e9 / self.seconds / threads;
        let clients = CLIENTS.len() as f64;
        ArmFigures {
            name: self.arm.name,
            blocks,
            hand_offs: all.len(),
            hand_off_us: all.quantiles(),
            block_p50_us,
            steps: self.steps.figures(),
            cores: Cores {
                manager: cores(self.manager_ns, 1.0),
                waiting_launch: cores(self.waiting_ns, clients),
                tracker: cores(self.tracker_ns, clients),
            },
        }
    }
}

impl Figures {
    fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "grants of {} ms; hand-off, µs; CPU, % of a core\n{:16} {:>6} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9}",
            self.grant_ms, "arm", "count", "p50", "p99", "max", "manager", "launch", "tracker"
        )?;
        for arm in &self.arms {
            let (us, cores) = (arm.hand_off_us, &arm.cores);
            writeln!(
                out,
                "{:16} {:6} {:8.1} {:8.1} {:8.1} {:9.2} {:9.2} {:9.2}",
                arm.name,
                arm.hand_offs,
                us.p50,
                us.p99,
                us.max,
                100.0 * cores.manager,
                100.0 * cores.waiting_launch,
                100.0 * cores.tracker
            )?;
            arm.steps.iter().try_for_each(|steps| steps.print(&mut out))?;
        }
        Ok(())
    }
}

/// Begin and end of the hand-offs from one process to the other: each of its waits begins one if the other process waits at this time and
/// is granted next.
fn hand_offs<'a>(from: &'a [Wait], to: &'a [Wait]) -> impl Iterator<Item = (u64, u64)> + 'a {
    from.iter().filter_map(|left| {
        let waits = |wait: &&Wait| {
            wait.called < left.called && left.called < wait.returned && wait.returned < left.returned
        };
        to.iter().find(waits).map(|wait| (left.called, wait.returned))
    })
}

#[cfg(test)]
mod tests;
