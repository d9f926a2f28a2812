//! `sluice hold`: takes programs that know nothing of Sluice off the GPU, or has them take turns, and always lets them go.
//!
//! Two processes do it, so that one of them can die at any time: a worker makes the controls and lets everybody go when its
//! standard input ends; this one holds the other end, and lets everybody go if the worker ends otherwise.

mod grip;
mod locks;
mod program;
mod turns;
mod worker;

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};

use crate::signals::Interrupts;

/// How long a worker may take to let everybody go: the driver may be waiting for a program to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Flags of `sluice hold`.
#[derive(Debug, Args)]
#[command(
    after_help = "Needs CAP_SYS_PTRACE (root in the host's pid namespace has it). A program that is held waits in its next call of the driver.
If both processes of this command are killed at once, `sluice hold --release --pid PID` lets a program go."
)]
pub(crate) struct Arguments {
    /// A program, by its process id; with --shares several
    #[arg(long = "pid", required_unless_present = "locks", value_name = "PID")]
    pids: Vec<i32>,
    /// Have the programs take turns in these proportions, one number each, such as 30,70
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    shares: Vec<u32>,
    /// How long; otherwise until standard input ends, or Ctrl-C
    #[arg(long)]
    seconds: Option<f64>,
    /// By what to hold
    #[arg(long, value_enum, default_value_t = By::Either)]
    by: By,
    /// Let programs go that somebody else has left held
    #[arg(long, conflicts_with_all = ["shares", "seconds"])]
    release: bool,
    /// The control device is a simulator's
    #[arg(long)]
    simulated: bool,
    /// Makes the locks of a pod-manager
    #[arg(long, hide = true, exclusive = true)]
    locks: bool,
    /// This is the worker
    #[arg(long, hide = true)]
    worker: bool,
}

/// What holds a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Channel groups, or the driver's lock where they are not found or cannot be stopped
    Either,
    /// Its channel groups are stopped: at once, in the middle of kernels
    Groups,
    /// The driver's lock (cuCheckpointProcessLock): when its work is done
    Lock,
}

/// Holds until the end.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.locks {
        return locks::serve().map(|()| ExitCode::SUCCESS);
    }
    ensure!(
        if arguments.shares.is_empty() {
            arguments.pids.len() == 1 || arguments.release
        } else {
            arguments.pids.len() == arguments.shares.len()
        },
        "--shares needs one number for each --pid, and several --pid need --shares"
    );
    if arguments.release {
        return worker::release(&arguments.pids, arguments.simulated).map(|()| ExitCode::SUCCESS);
    }
    if arguments.worker {
        return worker::run(arguments).map(|()| ExitCode::SUCCESS);
    }
    let interrupts = Interrupts::hold()?;
    let kept = keep(arguments, &interrupts);
    if let Err(why) = &kept {
        eprintln!("sluice: {why:#}; letting everybody go");
        worker::release(&arguments.pids, arguments.simulated)?;
    }
    kept.map(|()| ExitCode::SUCCESS)
}

/// Runs the worker. An error means that it may not have let everybody go.
fn keep(arguments: &Arguments, interrupts: &Interrupts) -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt;
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let mut worker = Command::new(program);
    worker.arg("hold").args(std::env::args_os().skip_while(|word| word != "hold").skip(1)).arg("--worker");
    // Ctrl-C is for this process.
    let mut worker =
        worker.stdin(Stdio::piped()).process_group(0).spawn().context("cannot start a worker")?;
    let mut input = worker.stdin.take();
    let theirs = turns::end_of_input();
    let mut end: Option<Instant> = None;
    loop {
        if let Some(status) = worker.try_wait().context("cannot wait for the worker")? {
            if !status.success() {
                bail!("the worker ended ({status})");
            }
            return Ok(());
        }
        let asked = arguments.seconds.is_none() && theirs.load(std::sync::atomic::Ordering::Acquire);
        if (interrupts.pause().is_err() || asked) && end.is_none() {
            input = None;
            end = Some(Instant::now() + PATIENCE);
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            let _ = worker.kill();
            let _ = worker.wait();
            drop(input);
            bail!("the worker did not end");
        }
    }
}
