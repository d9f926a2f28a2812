//! A program that is always busy and says how far it is when asked: what a doctor watches while it turns the knobs.
//!
//! On standard input, a line each: `go` begins the work, `count` asks for a [`Line::Count`]. The end of the input ends it. A
//! thread of its own answers, so that a program whose GPU work stands, or whose driver calls do, still answers.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::be::BLOCKS;
use crate::driver::Error;
use crate::kernel;
use crate::memory::DeviceBuffer;
use crate::session::{Event, Session};

/// What to run.
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
    /// Context, module and buffer are there; nothing was launched.
    Ready {
        /// Process id.
        pid: u32,
    },
    /// Answer to `count`.
    Count {
        /// Kernels seen to have ended.
        completed: u64,
    },
    /// The driver has failed: it is the last line.
    Failed {
        /// The call, and what it returned.
        why: String,
    },
}

#[derive(Debug, Default)]
struct Shared {
    completed: AtomicU64,
    ended: AtomicBool,
    /// Whether to launch, or to end before that.
    go: Mutex<bool>,
    told: Condvar,
}

/// Runs until standard input ends, or the driver fails.
///
/// # Errors
/// Output that cannot be written. A failure of the driver is a line of output.
pub fn run(config: Config) -> io::Result<()> {
    let shared = Arc::new(Shared::default());
    match work(config, &shared) {
        Ok(()) => Ok(()),
        Err(Stopped::Output(error)) => Err(error),
        Err(Stopped::Driver(error)) => say(&Line::Failed { why: error.to_string() }),
    }
}

enum Stopped {
    Driver(Error),
    Output(io::Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn work(config: Config, shared: &Arc<Shared>) -> Result<(), Stopped> {
    let session = Session::open(config.device)?;
    let stream = session.stream()?;
    // Its contents do not matter, and a copy might have to wait for a turn.
    let buffer = DeviceBuffer::new(&session, 8 * 1024)?;
    let events = (0..config.depth.max(1)).map(|_| session.event()).collect::<Result<Vec<Event<'_>>, _>>()?;
    let listener = Arc::clone(shared);
    thread::Builder::new().name("stdin".to_owned()).spawn(move || listen(&listener))?;
    say(&Line::Ready { pid: std::process::id() })?;
    if !shared.wait_for_go() {
        return Ok(());
    }
    let iterations = kernel::iterations(config.kernel);
    for (launched, event) in events.iter().cycle().enumerate() {
        if shared.ended.load(Ordering::Acquire) {
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
    /// False if the input has ended first.
    fn wait_for_go(&self) -> bool {
        let mut go = self.go.lock().unwrap_or_else(PoisonError::into_inner);
        while !*go && !self.ended.load(Ordering::Acquire) {
            go = self.told.wait(go).unwrap_or_else(PoisonError::into_inner);
        }
        *go
    }

    fn count(&self) -> Line {
        Line::Count { completed: self.completed.load(Ordering::Acquire) }
    }

    fn tell(&self, go: bool) {
        let mut told = self.go.lock().unwrap_or_else(PoisonError::into_inner);
        *told |= go;
        self.told.notify_all();
    }
}

fn listen(shared: &Shared) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match line.as_str() {
            "go" => shared.tell(true),
            "count" if say(&shared.count()).is_err() => break,
            _ => {}
        }
    }
    shared.ended.store(true, Ordering::Release);
    shared.tell(false);
}

fn say(line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    out.flush()
}
