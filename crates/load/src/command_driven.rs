//! Generators that execute commands: JSON lines on standard input, each answered with one JSON line. They end with their input.
//!
//! A measurement alternates between its arms in blocks, and the same processes serve all of them.

pub mod be;
pub mod lc;

use std::collections::BTreeMap;
use std::io::BufRead;
use std::time::{SystemTime, UNIX_EPOCH};

use libloading::os::unix::Library;
use serde::{Deserialize, Serialize};

use crate::driver::{Error, RunError};
use crate::memory::DeviceBuffer;
use crate::record::BufferState;
use crate::session::Session;

/// Words of the buffer that every kernel changes.
const WORDS: u32 = 64;

/// A command. Times are nanoseconds since the Unix epoch, which are the same for all processes of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Latency-critical: serves requests that arrive at a rate.
    Serve {
        /// Measured requests.
        requests: u32,
        /// Requests before those, which are not measured.
        warm_up: u32,
        /// Mean time between two arrivals, microseconds.
        period_us: f64,
        /// Time from `sluice_hint` to the arrival, microseconds, at most [`lc::MAX_LEAD_US`]; 0: no hints.
        lead_us: u32,
    },
    /// Best effort: launches kernels back to back until [`Command::Stop`].
    Run {
        /// Time of a kernel on an H200, microseconds.
        kernel_us: f64,
    },
    /// Ends [`Command::Run`].
    Stop {
        /// Begin of the measured span.
        from_ns: u64,
        /// End of the measured span.
        to_ns: u64,
    },
}

/// A generator's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The first kernel has run, and the generator waits for commands.
    Ready {
        /// Process id.
        pid: u32,
        /// The driver's name of the device.
        device: String,
        /// Whether the hook is loaded in this process.
        hooked: bool,
    },
    /// After [`Command::Run`]: the first kernel of that length has ended.
    Running,
    /// After [`Command::Serve`].
    Served(ServeResult),
    /// After [`Command::Stop`].
    Ran(RunResult),
}

/// The measurement of a block of requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServeResult {
    /// Time from each request's arrival to its answer, nanoseconds, in order.
    pub latencies_ns: Vec<u64>,
    /// Arrival of the first measured request.
    pub from_ns: u64,
    /// Answer of the last request.
    pub to_ns: u64,
    /// Counts of the results of `sluice_hint`.
    pub hints: BTreeMap<String, u64>,
    /// Hold kernels that the hook launched during the block, the warm-up included.
    pub holds: u64,
    /// The buffer, and the count of launches.
    pub proof: LaunchEvidence,
}

/// The measurement of a block of kernels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Kernels completed within the span; those at its ends count in proportion to the time.
    pub kernels: f64,
    /// Length of the whole span, nanoseconds, including any time in which no kernel was completed.
    pub span_ns: u64,
    /// Time from the last completion seen before the span to its begin, nanoseconds.
    pub before_ns: Option<u64>,
    /// Time from the span's begin to the first completion seen in it, nanoseconds.
    pub first_ns: Option<u64>,
    /// The buffer, and the count of launches.
    pub proof: LaunchEvidence,
}

/// The count of launches that a generator reports, and the buffer that proves it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LaunchEvidence {
    /// Kernels launched since the generator started.
    pub launches: u64,
    /// The buffer, which every kernel changes.
    pub buffer: BufferState,
}

impl LaunchEvidence {
    /// Reads the buffer, which is complete after a synchronisation.
    fn read(launches: u64, buffer: &DeviceBuffer<'_>) -> Result<Self, Error> {
        Ok(Self { launches, buffer: BufferState::of(&buffer.words()?) })
    }

    /// Whether exactly this many kernels ran.
    pub fn is_consistent(&self) -> bool {
        self.buffer.is_after(self.launches)
    }
}

impl Answer {
    /// The first answer of a generator in this session.
    fn ready(session: &Session, hook: &HookApi) -> Self {
        Self::Ready {
            pid: std::process::id(),
            device: session.device_name().to_owned(),
            hooked: hook.is_loaded(),
        }
    }
}

fn next_command(input: &mut impl BufRead) -> Result<Option<Command>, RunError> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(|why| RunError::Command(line.trim().to_owned(), why))
}

/// The current time, nanoseconds since the Unix epoch: the clock of [`Command`]s.
pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The hook's C API, by symbol name among the loaded libraries; all functions are absent if the hook is not loaded.
#[derive(Debug, Default)]
struct HookApi {
    hint: Option<unsafe extern "C" fn(u32) -> i32>,
    holds: Option<unsafe extern "C" fn(*mut u64, usize) -> usize>,
}

impl HookApi {
    fn find() -> Self {
        let all = Library::this();
        // SAFETY: only the hook exports these names, and its header declares these types; it is never unloaded.
        let (hint, holds) = unsafe { (all.get(b"sluice_hint\0"), all.get(b"sluice_hook_holds\0")) };
        Self { hint: hint.ok().map(|found| *found), holds: holds.ok().map(|found| *found) }
    }

    fn is_loaded(&self) -> bool {
        self.hint.is_some()
    }

    /// Calls `sluice_hint`; `None` without a hook.
    fn hint(&self, lead_us: u32) -> Option<i32> {
        // SAFETY: the function accepts any number.
        self.hint.map(|hint| unsafe { hint(lead_us) })
    }

    fn hold_kernels(&self) -> u64 {
        let mut counts = [0_u64; 2];
        if let Some(holds) = self.holds {
            // SAFETY: the pointer leads to as many numbers as the second argument states.
            let _ = unsafe { holds(counts.as_mut_ptr(), counts.len()) };
        }
        counts[0]
    }
}

#[cfg(test)]
mod tests;
