//! What the engine's own calls say.

use crate::config::PreemptionLevel;
use crate::ids::{Code, QueueId};

/// A preemption that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Achieved {
    /// The level in effect: at most the one asked for.
    pub level: PreemptionLevel,
    /// From the call to its end.
    pub took_ns: u64,
    /// Whether the stream is known to have stopped; always so after `sync`.
    pub stopped: bool,
}

/// Why a call did not do what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Preemption is not enabled for the stream.
    #[error("preemption is not enabled for the stream")]
    NotEnabled,
    /// It is, with the same configuration.
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
    /// The stream had not stopped in time.
    #[error("the stream did not stop in time")]
    Timeout {
        /// Whether it will still be preempted, or was rolled back.
        pending: bool,
    },
    /// The context could not be taken off the GPU; the stream runs as before.
    #[error("the context could not be saved")]
    ContextSaveFailed,
    /// Likewise, for lack of memory.
    #[error("not enough memory to save the context")]
    InsufficientMemory,
    /// The GPU does not answer any more.
    #[error("the GPU hangs")]
    GpuHung,
    /// Another thread restored the stream meanwhile.
    #[error("another call changed the stream's state meanwhile")]
    InvalidState,
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] Code),
}

/// What the engine tells whoever schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notice {
    /// Nothing has happened on the stream for its `task_timeout_ns`.
    Idle(QueueId),
    /// Who preempted the queue has not been heard of; it runs again.
    LeaseExpired(QueueId),
    /// A deferred command of the queue was refused by the driver.
    DeferredCommandFailed(QueueId, Code),
}
