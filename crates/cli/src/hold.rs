//! `sluice hold`: stops unhooked processes or gives them quanta in proportion, and always releases them.
//!
//! Two processes do it, so that either can be killed at any time. The worker makes the controls, and releases the processes when its
//! standard input ends. This process holds the other end of that input, and releases them if the worker ends for another reason.

mod lock_server;
mod process_groups;
mod stopped_process;
mod worker;

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};

use sluice_test_bed::Interrupts;

/// Limit for the worker to release all processes: the driver may be waiting for a process to end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// Flags of `sluice hold`.
#[derive(Debug, Args)]
#[command(
    after_help = "Needs CAP_SYS_PTRACE (root in the host's pid namespace has it). A stopped process waits in its next driver call.
If both processes of this command are killed at once, `sluice hold --release --pid PID` releases a process."
)]
pub(crate) struct Arguments {
    /// A process, by its id; several with --shares
    #[arg(long = "pid", required_unless_present = "locks", value_name = "PID")]
    pids: Vec<i32>,
    /// Give the processes quanta in these proportions, one number for each, such as 30,70
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    shares: Vec<u32>,
    /// Release the processes after this time; otherwise when standard input ends, or at Ctrl-C
    #[arg(long)]
    seconds: Option<f64>,
    /// The mechanism that stops a process
    #[arg(long, value_enum, default_value_t = By::Either)]
    by: By,
    /// Release processes that an earlier command has left stopped
    #[arg(long, conflicts_with_all = ["shares", "seconds"])]
    release: bool,
    /// The control device is a simulator's
    #[arg(long)]
    simulated: bool,
    /// Make the driver's locks for a pod-manager
    #[arg(long, hide = true, exclusive = true)]
    locks: bool,
    /// This process is the worker
    #[arg(long, hide = true)]
    worker: bool,
}

/// The mechanism that stops a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Channel groups; if they are not found or cannot be disabled, the driver's lock
    Either,
    /// Disable its channel groups: at once, in the middle of kernels
    Groups,
    /// The driver's lock (cuCheckpointProcessLock): after its submitted work has ended
    Lock,
}

/// Runs the command until its end.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.locks {
        return lock_server::serve();
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
        return worker::release(&arguments.pids, arguments.simulated);
    }
    if arguments.worker {
        return worker::run(arguments);
    }
    let interrupts = Interrupts::block()?;
    let result = supervise_worker(arguments, &interrupts);
    if let Err(why) = &result {
        eprintln!("sluice: {why:#}; releasing all processes");
        worker::release(&arguments.pids, arguments.simulated)?;
    }
    result
}

/// Runs the worker until its end. After an error the worker may not have released all processes.
fn supervise_worker(arguments: &Arguments, interrupts: &Interrupts) -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt;
    let program = std::env::current_exe().context("cannot read the path of this program")?;
    let mut worker = Command::new(program);
    worker.arg("hold").args(std::env::args_os().skip_while(|word| word != "hold").skip(1)).arg("--worker");
    // Its own process group, so that Ctrl-C is sent to this process only.
    let mut worker =
        worker.stdin(Stdio::piped()).process_group(0).spawn().context("cannot start a worker")?;
    let mut worker_input = worker.stdin.take();
    let input_has_ended = watch_input_end();
    let mut deadline: Option<Instant> = None;
    loop {
        if let Some(status) = worker.try_wait().context("cannot wait for the worker")? {
            if !status.success() {
                bail!("the worker ended ({status})");
            }
            return Ok(());
        }
        let ends_by_input = arguments.seconds.is_none() && input_has_ended.load(Ordering::Acquire);
        if (interrupts.pause().is_err() || ends_by_input) && deadline.is_none() {
            worker_input = None;
            deadline = Some(Instant::now() + RELEASE_TIMEOUT);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let _ = worker.kill();
            let _ = worker.wait();
            drop(worker_input);
            bail!("the worker did not end within {} s", RELEASE_TIMEOUT.as_secs());
        }
    }
}

/// A flag that a thread sets when standard input ends.
fn watch_input_end() -> Arc<AtomicBool> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&has_ended);
    thread::spawn(move || {
        let mut buffer = [0; 256];
        while matches!(io::stdin().read(&mut buffer), Ok(1..)) {}
        flag.store(true, Ordering::Release);
    });
    has_ended
}
