//! The output of a generator: one JSON object per line, flushed at once, so that a reader can follow the progress.
//!
//! A reader that can verify a value must not rely on it. `checksum` is the value that an independent reader compares.

use std::io::{self, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::driver::Error;
use crate::samples::Quantiles;
use crate::session::Session;

/// Time between two progress records.
pub const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// One line of output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The first kernel has run: context, module and buffers exist.
    Started {
        /// Process id.
        pid: u32,
        /// The driver's name of the device.
        device: String,
        /// Total memory that `cuMemGetInfo` returns, bytes: under the hook, the client's limit.
        memory_total: u64,
    },
    /// Progress of a best-effort run, every [`PROGRESS_EVERY`].
    BeProgress(BeCounts),
    /// Progress of a latency-critical run, every [`PROGRESS_EVERY`].
    LcProgress(LcCounts),
    /// The last line of a best-effort run.
    BeFinal {
        /// Totals.
        #[serde(flatten)]
        counts: BeCounts,
        /// The buffer at the end.
        #[serde(flatten)]
        buffer: BufferState,
        /// Failed driver calls, except refusals of memory, which `denied` counts.
        errors: Vec<String>,
    },
    /// The last line of a latency-critical run.
    LcFinal {
        /// Totals.
        #[serde(flatten)]
        counts: LcCounts,
        /// The buffer at the end.
        #[serde(flatten)]
        buffer: BufferState,
        /// Latencies of the earlier series, one for each mark on standard input, in order.
        earlier_us: Vec<Quantiles>,
        /// Pairs (upper bound in microseconds, requests).
        histogram_us: Vec<(f64, u64)>,
        /// Failed driver calls.
        errors: Vec<String>,
    },
}

/// Counters of a best-effort run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BeCounts {
    /// Seconds since the first kernel had run.
    pub seconds: f64,
    /// Launched kernels, the first one included.
    pub launches: u64,
    /// Completed kernels.
    pub completed: u64,
    /// Allocated device memory, bytes.
    pub held_bytes: u64,
    /// Largest `held_bytes`.
    pub peak_bytes: u64,
    /// Refused allocations.
    pub denied: u64,
    /// Longest time between the completions of two kernels as this process saw it, microseconds. Its own pauses are excluded.
    pub longest_stall_us: f64,
}

/// Counters of a latency-critical run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LcCounts {
    /// Seconds since the first kernel had run.
    pub seconds: f64,
    /// Requests answered.
    pub requests: u64,
    /// Launched kernels, the first one included.
    pub launches: u64,
    /// Requests answered after their deadline.
    pub missed: u64,
    /// Time from a request's scheduled arrival to its first answer. The quantiles cover the requests since the last mark on standard input, or
    /// since the last record if the configuration sets a report interval.
    pub latency_us: Quantiles,
    /// Time from one answer of a request to its next, for requests with tokens. If the configuration sets a report interval, the quantiles
    /// cover the tokens since the last record, otherwise all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_us: Option<Quantiles>,
}

/// The contents of a generator's buffer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BufferState {
    /// Words in it.
    pub elements: u32,
    /// [`crate::kernel::checksum`] of it, 16 hexadecimal digits.
    pub checksum: String,
}

impl BufferState {
    /// The state of a buffer read back from the device.
    pub fn of(words: &[u64]) -> Self {
        Self {
            elements: u32::try_from(words.len()).unwrap_or(u32::MAX),
            checksum: hexadecimal(crate::kernel::checksum(words.iter().copied())),
        }
    }

    /// Whether the buffer is the result of exactly `launches` kernels.
    pub fn is_after(&self, launches: u64) -> bool {
        self.checksum == hexadecimal(crate::kernel::expected_checksum(self.elements, launches))
    }
}

fn hexadecimal(sum: u64) -> String {
    format!("{sum:016x}")
}

/// Writes a value as one line of JSON and flushes it.
/// Returns `BrokenPipe` if its reader has ended.
pub fn write_line(value: &impl Serialize, sink: &mut impl Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    sink.write_all(&line)?;
    sink.flush()
}

impl Record {
    /// The first record of a generator in this session.
    pub(crate) fn started(session: &Session) -> Result<Self, Error> {
        let (_, memory_total) = session.memory_info()?;
        Ok(Self::Started { pid: std::process::id(), device: session.device_name().to_owned(), memory_total })
    }

    /// Decodes one line.
    pub fn parse(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }
}

#[cfg(test)]
mod tests;
