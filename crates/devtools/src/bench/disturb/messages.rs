//! Commands to the process of a client, and its answers: JSON, a line each.

use serde::{Deserialize, Serialize};

/// One line of input.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum Command {
    /// Begins the work.
    Go,
    /// Launches one kernel of this length, milliseconds.
    Long(u64),
    /// Launches a kernel and stops this process (SIGSTOP) before it has ended.
    Stop,
    /// Allocates and frees memory; answered with [`Answer::Allocated`].
    Allocate,
    /// Answered with [`Answer::Latencies`].
    Latencies,
    /// Answered with [`Answer::Completions`].
    Completions,
}

/// One line of output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum Answer {
    /// The first allocation was made; nothing was launched.
    Ready {
        /// Process id.
        pid: u32,
    },
    /// Time of the call, milliseconds.
    Allocated(f64),
    /// Time of each request since the last such answer, from when it was due, milliseconds.
    Latencies(Vec<f64>),
    /// When each kernel since the last such answer was seen to end, nanoseconds of CLOCK_MONOTONIC; of a process that was started with
    /// `--completions`.
    Completions(Vec<u64>),
}
