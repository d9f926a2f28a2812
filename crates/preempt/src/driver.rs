//! What the engine asks of the process it runs in.

use crate::command::Command;
use crate::ids::{Code, Context, Event, Stream};
use crate::outcome::Notice;

/// Flags an event was created with, as the driver has them.
pub type EventFlags = u32;

/// Time, as a parameter.
pub trait Clock: Send + Sync {
    /// A monotonic clock.
    fn now_ns(&self) -> u64;

    /// Lets other threads run for about `ns`.
    fn pause(&self, ns: u64);
}

/// The GPU driver. All of it may be called from any thread, with any context current.
pub trait Driver: Send + Sync {
    /// Gives a deferred command to the driver.
    fn submit(&self, stream: Stream, command: &Command) -> Result<(), Code>;

    /// Records an event.
    fn record(&self, stream: Stream, event: Event) -> Result<(), Code>;

    /// Makes the stream wait for what the event stands for at this moment.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), Code>;

    /// Makes an event.
    fn create_event(&self, context: Context, flags: EventFlags) -> Result<Event, Code>;

    /// Destroys an event; the driver keeps it until the GPU is through with it.
    fn destroy_event(&self, event: Event) -> Result<(), Code>;

    /// Whether the event has been reached: `NOT_READY` if not.
    fn query_event(&self, event: Event) -> Result<(), Code>;

    /// Waits until the event has been reached.
    fn synchronize_event(&self, event: Event) -> Result<(), Code>;

    /// GPU time between two events that were reached.
    fn elapsed_ns(&self, from: Event, to: Event) -> Result<u64, Code>;

    /// Whether all that was submitted has been done.
    fn query_stream(&self, stream: Stream) -> Result<(), Code>;

    /// Waits until all that was submitted has been done.
    fn synchronize_stream(&self, stream: Stream) -> Result<(), Code>;

    /// Destroys a stream; what was submitted is still done.
    fn destroy_stream(&self, stream: Stream) -> Result<(), Code>;

    /// Destroys an executable graph; launches that were submitted are still done.
    fn destroy_graph(&self, graph: u64) -> Result<(), Code>;

    /// Whether calls on the stream are recorded into a graph instead of run, or on the legacy default stream would break a capture of a
    /// blocking one. Cheap: asked per command while a bound holds.
    fn is_capturing(&self, stream: Stream) -> bool;

    /// Sets whether calls of this thread may be made beside other threads' captures, and returns what was set before
    /// (`cuThreadExchangeStreamCaptureMode`). The engine's own event calls are made relaxed.
    fn exchange_capture_relaxed(&self, relaxed: bool) -> bool;

    /// Whether the GPU still answers. Asked when a preemption has taken too long.
    fn is_hung(&self, context: Context) -> bool {
        let _ = context;
        false
    }

    /// Gates, if this GPU can wait for words of memory.
    fn stream_gates(&self) -> Option<&dyn StreamGates> {
        None
    }

    /// Slices, if somebody can take the GPU from a context.
    fn channel_groups(&self) -> Option<&dyn ChannelGroups> {
        None
    }
}

/// How far a stream has come with its gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateProgress {
    /// The last gate that was reached.
    pub arrived: u32,
    /// The last gate that was passed.
    pub passed: u32,
}

/// The device queue's gates. Each stream has a word that the GPU reads; gate `n` is passed while `word - n`, as a signed
/// 32-bit number, is not negative (`cuStreamWaitValue32` with GEQ).
pub trait StreamGates {
    /// Puts gate `number` behind what was submitted to the stream: noting that it was reached, waiting, noting that it was
    /// passed (one `cuStreamBatchMemOp`).
    fn place(&self, stream: Stream, number: u32) -> Result<(), Code>;

    /// Stores the stream's word. No driver call.
    fn store_word(&self, stream: Stream, word: u32);

    /// How far the GPU has come.
    fn progress(&self, stream: Stream) -> GateProgress;
}

/// Why slices could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChannelGroupError {
    /// Not on this machine, or not for one stream of a context; a lower level is used.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// The control did not come back in time.
    #[error("no answer in time")]
    Timeout,
    /// The context could not be saved.
    #[error("the context could not be saved")]
    ContextSaveFailed,
    /// Likewise, for lack of memory.
    #[error("not enough memory to save the context")]
    InsufficientMemory,
    /// The GPU does not answer.
    #[error("the GPU hangs")]
    GpuHung,
}

/// The hardware's slices, worked by somebody who can reach the channel groups.
pub trait ChannelGroups: Send + Sync {
    /// Takes the GPU from the stream. Returns when it has stopped.
    fn disable(&self, stream: Stream) -> Result<(), ChannelGroupError>;

    /// Gives it back.
    fn enable(&self, stream: Stream);
}

/// Who hears what the engine has to say. Called without locks held, from any thread.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn notice(&self, notice: Notice) {
        let _ = notice;
    }

    /// There is something to pump: a worker has to be woken, or started.
    fn wake(&self) {}
}
