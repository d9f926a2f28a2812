//! What the core asks of the process it runs in: a clock, the GPU driver, and the manager.

use std::fmt::Debug;

/// Time, as a parameter.
pub trait Clock {
    /// CLOCK_MONOTONIC, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// The counter that the grant page's `deadline_tsc` is compared with.
    fn ticks(&self) -> u64;

    /// Lets other threads run for about `ns` nanoseconds.
    fn pause(&self, ns: u64);
}

/// Which stream, told apart as far as the gate has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamKind {
    /// A stream that the program created.
    Created,
    /// The legacy default stream of the current context.
    Legacy,
    /// The calling thread's default stream: no other thread can name it.
    PerThread,
}

/// A stream as a launch names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream {
    /// The driver's handle; for per-thread default streams the thread's number in the upper half as well.
    pub handle: u64,
    /// What kind of stream the handle means.
    pub kind: StreamKind,
}

impl Stream {
    /// The stream that `handle` means in an entry point whose default stream is the calling thread's own (`_ptsz`) or not.
    #[inline]
    pub fn new(handle: u64, per_thread_default: bool, thread_id: u32) -> Self {
        match handle {
            0 if per_thread_default => Self::per_thread(thread_id),
            0 | 1 => Self { handle: 1, kind: StreamKind::Legacy },
            2 => Self::per_thread(thread_id),
            _ => Self { handle, kind: StreamKind::Created },
        }
    }

    #[inline]
    fn per_thread(thread_id: u32) -> Self {
        Self { handle: (u64::from(thread_id) << 32) | 2, kind: StreamKind::PerThread }
    }

    /// The handle to give to the driver.
    pub fn driver_handle(self) -> u64 {
        match self.kind {
            StreamKind::Created => self.handle,
            StreamKind::Legacy => 1,
            StreamKind::PerThread => 2,
        }
    }
}

/// Where a stream lives and how it orders itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLocation {
    /// The stream's context.
    pub context: u64,
    /// Whether the legacy default stream waits for it.
    pub blocking: bool,
}

/// An event recorded on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The context the event belongs to.
    pub context: u64,
    /// The driver's event handle.
    pub event: u64,
}

/// The GPU driver, as far as gate and tracker need it. All of it may be called from any thread.
pub trait Driver {
    /// Context and flags of a stream the calling thread is about to use; `None` without a current context.
    fn locate(&self, stream: Stream) -> Option<StreamLocation>;

    /// Whether calls on `stream` are recorded into a graph instead of run.
    fn is_capturing(&self, stream: Stream) -> bool;

    /// Records a timing event after everything submitted to the stream; `None` if the driver would not.
    fn mark(&self, context: u64, stream: Stream) -> Option<Mark>;

    /// Waits until the GPU has reached the mark.
    fn wait(&self, mark: Mark);

    /// GPU time between two marks that were both reached.
    fn elapsed_ns(&self, from: Mark, to: Mark) -> Option<u64>;

    /// Gives a mark back.
    fn discard(&self, mark: Mark);

    /// Whether the stream has nothing left to do; `None` if that cannot be asked from this thread.
    fn is_idle(&self, context: u64, stream: Stream) -> Option<bool>;

    /// Waits for everything submitted to the context.
    fn drain_context(&self, context: u64);
}

/// Why a manager could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Nobody listens, or the connection broke.
    #[error("manager is gone (errno {errno})")]
    Gone {
        /// The system's reason; 0 for an orderly close.
        errno: i32,
    },
    /// The manager refused the attachment.
    #[error("manager refused to attach: status {status}")]
    NotAdmitted {
        /// The status of its answer.
        status: i32,
    },
    /// The manager's bytes made no sense.
    #[error("manager sent a malformed answer")]
    Malformed,
}

/// A token connection that has just been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// Whether deadlines are compared as ticks (else as nanoseconds).
    pub deadline_in_ticks: bool,
    /// Whether the manager understands YIELD (a Gemini manager does not).
    pub accepts_yield: bool,
}

/// What a finished grant used, in milliseconds of GPU time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrantUsage {
    /// Busy time of all bursts.
    pub used_ms: f64,
    /// How much of it lay behind the deadline.
    pub overuse_ms: f64,
}

/// A request for the next grant, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrantRequest {
    /// How far the last grant overran.
    pub overuse_ms: f64,
    /// How long the program would run if nobody stopped it; 0 if unknown.
    pub next_burst_ms: f64,
}

/// The token connection to one manager, and the pages it handed out.
pub trait TokenLink: Debug {
    /// Connects and attaches; replaces whatever connection there was.
    fn connect(&self) -> Result<Attached, LinkError>;

    /// Closes the connection.
    fn disconnect(&self);

    /// Whether the peer is still there, without waiting.
    fn is_alive(&self) -> bool;

    /// Reports a finished grant, asks for the next one, or both, in one write.
    fn send(&self, used: Option<GrantUsage>, ask: Option<GrantRequest>) -> Result<(), LinkError>;

    /// Waits for the answer to an [`Ask`]: the quota in milliseconds. The grant page is up to date when it returns.
    fn receive(&self) -> Result<f64, LinkError>;

    /// The grant's deadline as ticks; 0 none, `u64::MAX` a standing grant. One acquiring load.
    fn deadline_ticks(&self) -> u64;

    /// The grant's deadline as CLOCK_MONOTONIC nanoseconds; 0 none, `u64::MAX` a standing grant.
    fn deadline_ns(&self) -> u64;

    /// Whether somebody else waits for the GPU.
    fn contended(&self) -> bool;

    /// What the manager wants to happen when it is lost; `None` if it never said.
    fn fail_closed(&self) -> Option<bool>;

    /// Tells the manager of driver handles that it has not been told of, if there are any. Called often, and under a lock:
    /// it must not call the driver.
    ///
    /// # Errors
    /// The connection is of no more use.
    fn announce(&self) -> Result<(), LinkError> {
        Ok(())
    }

    /// Tells the manager whether there is GPU work that is not known to have finished, since `now_ns`. Never two at once.
    fn set_activity(&self, busy: bool, now_ns: u64);

    /// How many others may use the GPU now, by the manager's word.
    fn contenders(&self) -> u64;

    /// Tells the manager that work arrived on an idle client, after [`Self::set_activity`]. `standing`: it has not asked for
    /// leave.
    fn wake_manager(&self);

    /// Publishes the GPU time that this process used since it started, in nanoseconds.
    fn report_busy(&self, busy_ns: u64);
}

/// The memory connection to one manager.
pub trait MemoryLink: Debug {
    /// Connects and attaches, telling how much this process holds.
    fn connect(&self, used_bytes: u64) -> Result<(), LinkError>;

    /// Whether a connection exists that has not broken.
    fn is_alive(&self) -> bool;

    /// (used, limit) in bytes, over all processes of the client.
    fn usage(&self) -> Result<(u64, u64), LinkError>;

    /// Asks for `bytes` more; `false` if they do not fit.
    fn reserve(&self, bytes: u64) -> Result<bool, LinkError>;

    /// Gives `bytes` back.
    fn release(&self, bytes: u64) -> Result<(), LinkError>;

    /// What the manager wants to happen when it is lost; `None` if it never said.
    fn fail_closed(&self) -> Option<bool>;
}
