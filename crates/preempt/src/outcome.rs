//! Results and notices of the engine's own calls.

use crate::config::PreemptionLevel;
use crate::ids::{Code, QueueId};

/// The result of a preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Achieved {
    /// The level in effect; at most the requested one.
    pub level: PreemptionLevel,
    /// Duration of the call, in nanoseconds.
    pub took_ns: u64,
    /// Whether the stream is known to have stopped. Always true after a synchronous request.
    pub stopped: bool,
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Preemption is not enabled for the stream.
    #[error("preemption is not enabled for the stream")]
    NotEnabled,
    /// Preemption is enabled already, with the same configuration.
    #[error("preemption is already enabled for the stream")]
    AlreadyEnabled,
    /// The sizes contradict each other.
    #[error("invalid configuration")]
    InvalidConfig,
    /// The stream does not exist.
    #[error("invalid stream")]
    InvalidStream,
    /// The program has destroyed the stream.
    #[error("the stream is being destroyed")]
    Closing,
    /// The stream did not stop in time.
    #[error("the stream did not stop in time")]
    Timeout {
        /// Whether the stream will still stop later; otherwise the preemption was rolled back.
        pending: bool,
    },
    /// The context could not be taken off the GPU. The stream runs as before.
    #[error("the context could not be saved")]
    ContextSaveFailed,
    /// Not enough memory to save the context. The stream runs as before.
    #[error("not enough memory to save the context")]
    InsufficientMemory,
    /// The GPU no longer answers.
    #[error("the GPU hangs")]
    GpuHung,
    /// Another thread restored the stream during the call.
    #[error("another call changed the stream's state at the same time")]
    InvalidState,
    /// The driver returned an error.
    #[error(transparent)]
    Driver(#[from] Code),
}

/// What the engine reports to the process that schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The stream made no progress for its `task_timeout_ns`.
    Idle(QueueId),
    /// The preemption lasted for `outage_ns`. The stream runs again.
    OutageEnded(QueueId),
    /// The driver refused a deferred command of the queue.
    DeferredCommandFailed(QueueId, Code),
}
