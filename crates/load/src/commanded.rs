//! Generators that work on command, a block at a time, so that the arms of a measurement take turns without starting a process
//! for each: commands come as JSON lines on standard input, each is answered with one JSON line. They end with their input.

pub mod be;
pub mod lc;
mod looks;
mod program;

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::record::BufferState;
use crate::report::RunError;

/// What to do next. Times are nanoseconds since the Unix epoch, which all processes of a machine agree on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Latency-critical: requests that arrive at a rate.
    Serve {
        /// Requests that count.
        requests: u32,
        /// Requests before those, which do not.
        warm_up: u32,
        /// Mean time between two arrivals, microseconds.
        period_us: f64,
        /// `sluice_hint` so long before each arrival, microseconds, at most [`lc::MAX_LEAD_US`]; 0: never.
        lead_us: u32,
    },
    /// Best effort: kernels back to back until [`Command::Stop`].
    Run {
        /// Time of a kernel on an H200, microseconds.
        kernel_us: f64,
    },
    /// Ends [`Command::Run`].
    Stop {
        /// Begin of the span in which kernels count.
        from_ns: u64,
        /// Its end.
        to_ns: u64,
    },
}

/// What a generator says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Its first kernel has run; commands are waited for.
    Ready {
        /// Process id.
        pid: u32,
        /// Name of the device as the driver gives it.
        device: String,
        /// The hook is in this process.
        hooked: bool,
    },
    /// After [`Command::Run`]: the first kernel of that length has ended.
    Running,
    /// After [`Command::Serve`].
    Served(Served),
    /// After [`Command::Stop`].
    Ran(Ran),
}

/// A block of requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// From a request's arrival to its answer, nanoseconds, in order.
    pub latencies_ns: Vec<u64>,
    /// Arrival of the first that counts.
    pub from_ns: u64,
    /// Answer of the last.
    pub to_ns: u64,
    /// Results of `sluice_hint`, how often each.
    pub hints: BTreeMap<String, u64>,
    /// Holds that the hook has launched meanwhile, for requests that do not count too.
    pub holds: u64,
    /// The buffer, and the launches that it has to be the result of.
    pub proof: Proof,
}

/// Kernels of a block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// Kernels that ended within the span; those around its ends count in proportion to the time.
    pub kernels: f64,
    /// The whole span, nanoseconds, however long of it nothing ended.
    pub span_ns: u64,
    /// From the last look before the span to its begin, nanoseconds: how long nothing had been seen to end.
    pub before_ns: Option<u64>,
    /// From the span's begin to the first look in it, nanoseconds.
    pub first_ns: Option<u64>,
    /// The buffer, and the launches that it has to be the result of.
    pub proof: Proof,
}

/// What a generator claims to have launched since it started, beside what its buffer says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// Kernels.
    pub launches: u64,
    /// The buffer that each of them has changed.
    pub buffer: BufferState,
}

impl Proof {
    /// True if exactly so many kernels ran.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.buffer.is_after(self.launches)
    }
}

impl Answer {
    /// Writes the answer as one line and flushes it.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn write_to(&self, sink: &mut impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        sink.write_all(&line)?;
        sink.flush()
    }
}

/// The next command; `None` at the end of the input.
fn next_command(input: &mut impl BufRead) -> Result<Option<Command>, RunError> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(|why| RunError::Command(line.trim().to_owned(), why))
}

/// Now, nanoseconds since the Unix epoch: the clock of [`Command`]s.
#[must_use]
pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_reads_back_the_same_and_the_input_ends() {
        let stop = Command::Stop { from_ns: 1, to_ns: 2 };
        let text = serde_json::to_string(&stop).unwrap() + "\n";
        let mut input = text.as_bytes();
        assert_eq!(next_command(&mut input).unwrap(), Some(stop));
        assert_eq!(next_command(&mut input).unwrap(), None);
    }

    #[test]
    fn what_is_no_command_is_quoted() {
        let why = next_command(&mut &b"dance\n"[..]).unwrap_err().to_string();
        assert!(why.contains("dance"), "{why}");
    }
}
