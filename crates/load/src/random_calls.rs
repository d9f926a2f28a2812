//! A program that makes random driver calls on several threads, for the soak of `sluice-dev`.
//!
//! It executes a [`Command`] from each line of standard input and answers with an [`Answer`]. Each thread has streams, memory and
//! graphs of its own. The kernels of a thread change a buffer whose contents show how many of them ran; the thread compares it
//! whenever it becomes quiet. An allocation may be refused for want of memory. Every other error ends the program.

mod allocation;
mod caller;
mod captured;
mod children;
mod patterned;
mod phase;
mod random;
mod second_context;

use std::ffi::OsString;
use std::io::{self, BufRead};
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::driver::{Error, RunError};
use crate::record::write_line;
use crate::session::Session;

use caller::Caller;
use phase::{Phase, PhaseControl};
pub use random::Random;

/// The configuration of a run.
#[derive(Debug, Clone)]
pub struct Config {
    /// The numbers that choose the calls follow from it.
    pub seed: u64,
    /// Threads that make calls.
    pub threads: u32,
    /// Calls of each thread, after which the program ends: it is a short child. A thread that gets no memory makes none. Without it, commands
    /// decide.
    pub calls: Option<u64>,
    /// Use memory pools, and allocate in captures. A pool may grow beyond a limit until its stream has reached the free.
    pub pools: bool,
    /// Keep everything in memory from `cuMemAlloc` that is large enough to leave the GPU, and compare all of it.
    pub movable: bool,
    /// The longest pause of a thread between two calls.
    pub pause: Duration,
    /// A program that uses the driver and ends by itself, with arguments; `--seed N` is added. Started now and then if not empty.
    pub child: Vec<OsString>,
}

/// A line of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// The threads make calls. No answer.
    Go,
    /// The threads wait for their work and keep their memory.
    Quiet,
    /// The same, and they free what can be freed.
    Free,
}

/// A line of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The threads exist and wait for the first command.
    Ready,
    /// No thread makes calls, and no work is on the GPU.
    Quiet(Counts),
    /// The driver has failed, or a result was wrong; this is the last line.
    Failed(String),
}

/// What a quiet program reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Calls that the threads have chosen so far.
    pub calls: u64,
    /// Allocations that were refused for want of memory.
    pub refused: u64,
    /// Kernels whose effect was found in a buffer.
    pub verified: u64,
    /// Free memory, as `cuMemGetInfo` reports it.
    pub free: u64,
    /// Total memory, as `cuMemGetInfo` reports it.
    pub total: u64,
}

/// Why a thread ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A driver call returned an error other than a refusal for want of memory.
    #[error(transparent)]
    Driver(#[from] Error),
    /// A buffer does not show the effect of all kernels.
    #[error("a buffer does not show the effect of exactly {launched} kernels")]
    WrongResult {
        /// Kernels that were launched.
        launched: u64,
    },
    /// Memory that nothing has changed has another content.
    #[error("word {index} of a block is {found:#018x}, expected {expected:#018x}")]
    WrongWord {
        /// Its place, in words.
        index: u64,
        /// What was read.
        found: u64,
        /// What was written.
        expected: u64,
    },
    /// A child was not started, or ended with an error.
    #[error("a child: {0}")]
    Child(String),
}

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) phase: PhaseControl,
    /// Waiting for a whole context is forbidden while a stream of it is captured: captures read-lock this, such waits write-lock it.
    pub(crate) captures: RwLock<()>,
    pub(crate) calls: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) verified: AtomicU64,
}

/// Runs until the input ends, all calls were made or a thread fails.
/// Errors: the device cannot be used, or the output cannot be written.
pub fn run(config: &Config) -> Result<(), RunError> {
    let session = Session::open(0)?;
    let shared = Shared {
        config: config.clone(),
        phase: PhaseControl::new(if config.calls.is_some() { Phase::Going } else { Phase::Quiet }),
        captures: RwLock::new(()),
        calls: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        verified: AtomicU64::new(0),
    };
    let (sender, quiet) = channel();
    thread::scope(|scope| {
        for number in 0..config.threads {
            let (session, shared, sender) = (&session, &shared, sender.clone());
            scope.spawn(move || {
                if let Err(failure) = make_calls(session, shared, number, &sender) {
                    // Other threads may wait for a driver that has failed, so they cannot be ended in order.
                    let _ = write_line(&Answer::Failed(failure.to_string()), &mut io::stdout());
                    std::process::exit(1);
                }
            });
        }
        if config.calls.is_some() {
            return Ok(());
        }
        // Every thread reports once when it is ready.
        wait_for_all(&quiet, config.threads);
        write_line(&Answer::Ready, &mut io::stdout())?;
        execute_commands(&session, &shared, &quiet)?;
        // Threads may wait for grants that never come; the end of a process needs none.
        std::process::exit(0);
    })
}

fn execute_commands(session: &Session, shared: &Shared, quiet: &Receiver<()>) -> Result<(), RunError> {
    session.use_on_this_thread()?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let command = serde_json::from_str(&line).map_err(|error| RunError::Command(line, error))?;
        shared.phase.set(match command {
            Command::Go => Phase::Going,
            Command::Quiet => Phase::Quiet,
            Command::Free => Phase::Free,
        });
        if command == Command::Go {
            continue;
        }
        wait_for_all(quiet, shared.config.threads);
        let (free, total) = session.memory_info()?;
        let counts = Counts {
            calls: shared.calls.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
            verified: shared.verified.load(Ordering::Relaxed),
            free,
            total,
        };
        write_line(&Answer::Quiet(counts), &mut io::stdout())?;
    }
    Ok(())
}

/// Waits until each thread has reported. A thread that fails ends the program.
fn wait_for_all(quiet: &Receiver<()>, threads: u32) {
    for _ in 0..threads {
        let _ = quiet.recv();
    }
}

fn make_calls(session: &Session, shared: &Shared, number: u32, quiet: &Sender<()>) -> Result<(), Failure> {
    session.use_on_this_thread()?;
    let random = Random::new(shared.config.seed).split(u64::from(number));
    let Some(mut caller) = Caller::new(session, shared, random)? else { return Ok(()) };
    if let Some(calls) = shared.config.calls {
        (0..calls).try_for_each(|_| caller.call())?;
        return caller.free_all();
    }
    let mut seen = 0;
    loop {
        let (change, phase) = shared.phase.current();
        match phase {
            Phase::Going => caller.call()?,
            Phase::Quiet | Phase::Free => {
                if change != seen {
                    caller.verify()?;
                    if phase == Phase::Free {
                        caller.free_all()?;
                    }
                    // The receiver exists as long as the program.
                    let _ = quiet.send(());
                }
                shared.phase.wait_for_change(change);
            }
        }
        seen = change;
    }
}
