//! A program that is always busy and reports its count of completed kernels on request. `sluice doctor` observes it while it changes
//! time slices and disables channels.
//!
//! Commands are lines on standard input: `go` begins the work, `count` requests a [`Line::Count`]. The program ends with its input. A
//! separate thread answers, so that a program of which the GPU work or the driver calls are stopped still answers.

use std::io::{self, BufRead};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::be::BLOCKS;
use crate::kernel;
use crate::memory::DeviceBuffer;
use crate::record::write_line;
use crate::run_error::RunError;
use crate::session::{Event, Session};

/// The configuration of a run.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Device ordinal.
    pub device: i32,
    /// Time of one kernel on an H200.
    pub kernel: Duration,
    /// Kernels in flight, at least 1.
    pub depth: usize,
}

/// One line of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "steady", rename_all = "snake_case")]
pub enum Line {
    /// Context, module and buffer exist; nothing was launched.
    Ready {
        /// Process id.
        pid: u32,
    },
    /// Answer to `count`.
    Count {
        /// Completed kernels.
        completed: u64,
    },
    /// The driver has failed; this is the last line.
    Failed {
        /// The call, and its status.
        why: String,
    },
}

#[derive(Debug, Default)]
struct Shared {
    completed: AtomicU64,
    /// Standard input has ended.
    input_ended: AtomicBool,
    /// `go` was received.
    go: Mutex<bool>,
    /// Signals a change of either.
    changed: Condvar,
}

/// Runs until standard input ends or the driver fails.
///
/// # Errors
/// The output cannot be written. A failure of the driver is a line of output.
pub fn run(config: Config) -> io::Result<()> {
    let shared = Arc::new(Shared::default());
    match work(config, &shared) {
        Ok(()) => Ok(()),
        Err(RunError::Output(error)) => Err(error),
        Err(error) => print_line(&Line::Failed { why: error.to_string() }),
    }
}

fn work(config: Config, shared: &Arc<Shared>) -> Result<(), RunError> {
    let session = Session::open(config.device)?;
    let stream = session.stream()?;
    // The contents do not matter, and a copy might have to wait for a quantum.
    let buffer = DeviceBuffer::new(&session, 8 * 1024)?;
    let events = (0..config.depth.max(1)).map(|_| session.event()).collect::<Result<Vec<Event<'_>>, _>>()?;
    let for_commands = Arc::clone(shared);
    thread::Builder::new().name("stdin".to_owned()).spawn(move || execute_commands(&for_commands))?;
    print_line(&Line::Ready { pid: std::process::id() })?;
    if !shared.wait_for_go() {
        return Ok(());
    }
    let iterations = kernel::iterations(config.kernel);
    for (launched, event) in events.iter().cycle().enumerate() {
        if shared.input_ended.load(Ordering::Acquire) {
            break;
        }
        if launched >= events.len() {
            event.wait()?;
            shared.completed.fetch_add(1, Ordering::AcqRel);
        }
        stream.launch(&buffer, BLOCKS, iterations)?;
        event.record(&stream)?;
    }
    Ok(stream.synchronize()?)
}

impl Shared {
    /// Waits for `go`. Returns false if the input ends first.
    fn wait_for_go(&self) -> bool {
        let mut go = self.go.lock().unwrap_or_else(PoisonError::into_inner);
        while !*go && !self.input_ended.load(Ordering::Acquire) {
            go = self.changed.wait(go).unwrap_or_else(PoisonError::into_inner);
        }
        *go
    }

    fn count(&self) -> Line {
        Line::Count { completed: self.completed.load(Ordering::Acquire) }
    }

    fn notify(&self, go: bool) {
        let mut received = self.go.lock().unwrap_or_else(PoisonError::into_inner);
        *received |= go;
        self.changed.notify_all();
    }
}

fn execute_commands(shared: &Shared) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match line.as_str() {
            "go" => shared.notify(true),
            "count" if print_line(&shared.count()).is_err() => break,
            _ => {}
        }
    }
    shared.input_ended.store(true, Ordering::Release);
    shared.notify(false);
}

fn print_line(line: &Line) -> io::Result<()> {
    write_line(line, &mut io::stdout().lock())
}
