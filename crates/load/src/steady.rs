//! A program that is always busy and reports its count of completed kernels on request. `sluice doctor` observes it while it changes
//! time slices and disables channels.
//!
//! Commands are lines on standard input: `go` begins the work, `count` requests a [`Line::Count`]. The program ends with its input. A
//! separate thread answers, so that a program of which the GPU work or the driver calls are stopped still answers.

use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::be::BLOCKS;
use crate::driver::RunError;
use crate::kernel;
use crate::memory::DeviceBuffer;
use crate::record::write_line;
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

/// Runs until standard input ends or the driver fails.
/// Errors: the output cannot be written. A failure of the driver is a line of output.
pub fn run(config: Config) -> io::Result<()> {
    match work(config) {
        Ok(()) => Ok(()),
        Err(RunError::Output(error)) => Err(error),
        Err(error) => print_line(&Line::Failed { why: error.to_string() }),
    }
}

fn work(config: Config) -> Result<(), RunError> {
    let session = Session::open(config.device)?;
    let stream = session.stream()?;
    // The contents do not matter, and a copy might have to wait for a quantum.
    let buffer = DeviceBuffer::new(&session, 8 * 1024)?;
    let events = (0..config.depth.max(1)).map(|_| session.event()).collect::<Result<Vec<Event<'_>>, _>>()?;
    let completed = Arc::new(AtomicU64::new(0));
    let (sender, go) = channel();
    let reported = Arc::clone(&completed);
    thread::Builder::new().name("stdin".to_owned()).spawn(move || execute_commands(&reported, &sender))?;
    print_line(&Line::Ready { pid: std::process::id() })?;
    if go.recv().is_err() {
        return Ok(());
    }
    let iterations = kernel::iterations(config.kernel);
    for (launched, event) in events.iter().cycle().enumerate() {
        if go.try_recv() == Err(TryRecvError::Disconnected) {
            break;
        }
        if launched >= events.len() {
            event.wait()?;
            completed.fetch_add(1, Ordering::AcqRel);
        }
        stream.launch(&buffer, BLOCKS, iterations)?;
        event.record(&stream)?;
    }
    Ok(stream.synchronize()?)
}

/// Sends each `go` until the input ends, and then drops the sender.
fn execute_commands(completed: &AtomicU64, go: &Sender<()>) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let executed = match line.as_str() {
            "go" => go.send(()).is_ok(),
            "count" => print_line(&Line::Count { completed: completed.load(Ordering::Acquire) }).is_ok(),
            _ => true,
        };
        if !executed {
            break;
        }
    }
}

fn print_line(line: &Line) -> io::Result<()> {
    write_line(line, &mut io::stdout().lock())
}
