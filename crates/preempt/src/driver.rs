//! Interfaces that the process around the engine implements.

use crate::command::Command;
use crate::ids::{Code, Context, Event, Stream};
use crate::outcome::Notice;

/// Flags that an event was created with, in the driver's encoding.
pub type EventFlags = u32;

/// Time, as a parameter.
pub trait Clock: Send + Sync {
    /// A monotonic clock.
    fn now_ns(&self) -> u64;

    /// Lets other threads run for about `ns`.
    fn pause(&self, ns: u64);
}

/// The GPU driver. Every function may be called from any thread, with any context current.
pub trait Driver: Send + Sync {
    /// Submits a deferred command to the driver.
    fn submit(&self, stream: Stream, command: &Command) -> Result<(), Code>;

    /// Records an event.
    fn record(&self, stream: Stream, event: Event) -> Result<(), Code>;

    /// Makes the stream wait for what the event stands for at this moment.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), Code>;

    /// Creates an event.
    fn create_event(&self, context: Context, flags: EventFlags) -> Result<Event, Code>;

    /// Destroys an event; the driver keeps it until the GPU no longer needs it.
    fn destroy_event(&self, event: Event) -> Result<(), Code>;

    /// Whether the GPU has reached the event: `NOT_READY` if not.
    fn query_event(&self, event: Event) -> Result<(), Code>;

    /// Waits until the GPU has reached the event.
    fn synchronize_event(&self, event: Event) -> Result<(), Code>;

    /// GPU time between two events that the GPU has reached.
    fn elapsed_ns(&self, from: Event, to: Event) -> Result<u64, Code>;

    /// Whether the GPU has completed everything submitted.
    fn query_stream(&self, stream: Stream) -> Result<(), Code>;

    /// Waits until the GPU has completed everything submitted.
    fn synchronize_stream(&self, stream: Stream) -> Result<(), Code>;

    /// Destroys a stream; submitted work still completes.
    fn destroy_stream(&self, stream: Stream) -> Result<(), Code>;

    /// Destroys an executable graph; submitted launches still complete.
    fn destroy_graph(&self, graph: u64) -> Result<(), Code>;

    /// Whether calls on the stream are recorded into a graph instead of run. For the legacy default stream: whether a
    /// call on it would break a capture of a blocking stream. Must be cheap: called for each command while a bound
    /// holds.
    fn is_capturing(&self, stream: Stream) -> bool;

    /// Sets whether this thread may make calls that other threads' captures forbid, and returns the previous setting
    /// (`cuThreadExchangeStreamCaptureMode`). The engine makes its own event calls in the relaxed mode.
    fn exchange_capture_relaxed(&self, relaxed: bool) -> bool;

    /// Whether the GPU no longer answers. Called when a preemption took too long.
    fn is_hung(&self, context: Context) -> bool {
        let _ = context;
        false
    }

    /// Stream gates, if this GPU can wait for words of memory.
    fn stream_gates(&self) -> Option<&dyn StreamGates> {
        None
    }

    /// Control of channel groups, if this process can disable those of a context.
    fn channel_groups(&self) -> Option<&dyn ChannelGroups> {
        None
    }
}

/// How far the GPU has come with a stream's gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateProgress {
    /// The last gate that the stream reached.
    pub arrived: u32,
    /// The last gate that the stream passed.
    pub passed: u32,
}

/// Gates of a stream's device queue. Each stream has a word that the GPU reads. The GPU passes gate `n` while `word -
/// n`, as a signed 32-bit number, is not negative (`cuStreamWaitValue32` with GEQ).
pub trait StreamGates {
    /// Puts gate `number` behind what was submitted to the stream: write that it was reached, wait, write that it was
    /// passed (one `cuStreamBatchMemOp`).
    fn place(&self, stream: Stream, number: u32) -> Result<(), Code>;

    /// Stores the stream's word. Makes no driver call.
    fn store_word(&self, stream: Stream, word: u32);

    /// How far the GPU has come with the stream's gates.
    fn progress(&self, stream: Stream) -> GateProgress;
}

/// Why a channel group could not be disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChannelGroupError {
    /// Not possible on this machine, or not for a single stream of a context. The engine uses a lower level.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// The driver did not answer the control request in time.
    #[error("the driver did not answer in time")]
    Timeout,
    /// The driver could not save the context.
    #[error("the context could not be saved")]
    ContextSaveFailed,
    /// The driver had not enough memory to save the context.
    #[error("not enough memory to save the context")]
    InsufficientMemory,
    /// The GPU does not answer.
    #[error("the GPU hangs")]
    GpuHung,
}

/// Control of the channel groups behind streams.
pub trait ChannelGroups: Send + Sync {
    /// Takes the GPU from the stream's context. Returns when it has stopped.
    fn disable(&self, stream: Stream) -> Result<(), ChannelGroupError>;

    /// Gives the GPU back to the stream's context.
    fn enable(&self, stream: Stream);
}

/// Receives the engine's notices. Called from any thread, without locks held.
pub trait Observer: Send + Sync {
    /// An event that a scheduler may want to know.
    fn notice(&self, notice: Notice) {
        let _ = notice;
    }

    /// [`crate::engine::Engine::dispatch`] has work: the process wakes a worker, or starts one.
    fn wake(&self) {}
}
