//! Traits of the process in which the hook runs: a clock, the GPU driver, and the connections to the manager.

use std::fmt::Debug;

use sluice_comm::HandOffStep;

use crate::burst_admission::{RequestForecast, UrgentWork};
use crate::host_bound::{SliceReport, Slices};
use crate::latency::Measured;
use crate::outcome::Bypass;

/// A clock, so that tests can set the time.
pub trait Clock {
    /// CLOCK_MONOTONIC, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// The counter that the grant page's `deadline_tsc` is compared with.
    fn ticks(&self) -> u64;

    /// Lets other threads run for about `ns` nanoseconds.
    fn pause(&self, ns: u64);

    /// Lets a thread that polls wait for a few cycles.
    fn spin(&self);

    /// Prepares [`Self::order_all_threads`]. `false` if the system does not have it.
    fn can_order_all_threads(&self) -> bool;

    /// Has every thread of the process pass a full memory barrier between the begin and the end of the call. Called only after
    /// [`Self::can_order_all_threads`] has returned `true`.
    ///
    /// Returns `false` if the system refuses, as it may from some time on (a filter of system calls).
    fn order_all_threads(&self) -> bool;

    /// Records a step of a hand-off at the present time, if a benchmark asks for it.
    fn record_step(&self, _step: HandOffStep) {}
}

/// The kind of a stream, as far as the launch gate distinguishes kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamKind {
    /// A stream that the program created.
    Created,
    /// The legacy default stream of the current context.
    Legacy,
    /// The calling thread's default stream. No other thread has a name for it.
    PerThread,
}

/// A stream as a launch names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream {
    /// The driver's handle; for per-thread default streams the thread's number is in the upper half.
    pub handle: u64,
    /// The kind of stream that the handle names.
    pub kind: StreamKind,
}

impl Stream {
    /// The stream that `handle` names in an entry point. With `per_thread_default` (`_ptsz`) 0 names the calling thread's own stream.
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

/// The context of a stream, and how the stream is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLocation {
    /// The stream's context.
    pub context: u64,
    /// Whether the legacy default stream waits for this stream.
    pub blocking: bool,
}

/// An event recorded on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The context the event belongs to.
    pub context: u64,
    /// The driver's event handle.
    pub event: u64,
    /// Tells the event from a later one with the same handles.
    pub number: u64,
}

/// The GPU driver, as far as launch gate and tracker need it. All functions may be called from any thread.
pub trait Driver {
    /// Context and flags of a stream that the calling thread is about to use; `None` without a current context.
    fn locate(&self, stream: Stream) -> Option<StreamLocation>;

    /// Whether calls on `stream` are recorded into a graph instead of run.
    fn is_capturing(&self, stream: Stream) -> bool;

    /// Records a timing event after everything submitted to the stream; `None` if the driver refuses.
    fn mark(&self, context: u64, stream: Stream) -> Option<Mark>;

    /// Waits until the GPU has reached the mark.
    fn wait(&self, mark: Mark);

    /// Whether the GPU has reached the mark, or the mark's event has ended with its context. Does not wait.
    fn is_reached(&self, mark: Mark) -> bool;

    /// GPU time between two marks that the GPU has reached.
    fn elapsed_ns(&self, from: Mark, to: Mark) -> Option<u64>;

    /// Returns a mark for reuse.
    fn discard(&self, mark: Mark);

    /// Whether the stream has no work left; `None` if this thread cannot query it.
    fn is_idle(&self, context: u64, stream: Stream) -> Option<bool>;

    /// Whether commands of the context wait in queues of the hook. They reach the driver later, without a call of the program.
    fn has_queued(&self, context: u64) -> bool;

    /// The same for commands of destroyed streams only.
    fn has_queued_of_destroyed(&self, context: u64) -> bool;

    /// Waits for everything submitted to the context.
    fn drain_context(&self, context: u64);
}

/// Why a manager cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// No process listens, the connection broke, or the manager's bytes could not be decoded.
    Gone,
    /// The connection exists, but the manager writes no heartbeat or reads no requests: it is stopped or hangs.
    Silent,
    /// The manager refused the attachment.
    NotAdmitted {
        /// The status of its answer.
        status: i32,
    },
    /// The manager runs and has no room for this process. Unlike one that was lost, it may have admitted other processes of the client, so
    /// this one waits, whatever is configured for a lost manager.
    NoRoom,
}

impl LinkError {
    /// The reason for which calls bypass.
    pub(crate) fn bypass(self) -> Bypass {
        match self {
            Self::NotAdmitted { .. } | Self::NoRoom => Bypass::NotAdmitted,
            Self::Gone | Self::Silent => Bypass::ManagerGone,
        }
    }
}

/// Properties of a token connection that has just been made.
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
    /// The part of it that lay after the deadline.
    pub overuse_ms: f64,
}

/// A request for the next grant, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrantRequest {
    /// The overrun of the last grant.
    pub overuse_ms: f64,
    /// How long the program would run without a quota; 0 if unknown.
    pub next_burst_ms: f64,
}

/// The token connection to one manager, and the pages that the manager sent.
pub trait TokenLink: Debug {
    /// Connects and attaches; replaces an existing connection. Not called while a thread is in [`Self::receive`].
    ///
    /// # Errors
    /// [`LinkError::Silent`] at once, as long as the manager of the existing connection is silent.
    fn connect(&self) -> Result<Attached, LinkError>;

    /// Ends the connection, so that [`Self::receive`] returns. Its descriptor stays open until [`Self::connect`].
    fn disconnect(&self);

    /// Whether the connection still exists and the manager is not silent, without waiting.
    fn is_alive(&self) -> bool;

    /// For how many more nanoseconds from `now_ns` on the manager counts as present without another heartbeat: 0 if it is silent, `None` if
    /// it writes no heartbeat or there is no connection.
    fn presence_left_ns(&self, now_ns: u64) -> Option<u64>;

    /// Reports a finished grant, requests the next one, or both, in one write.
    fn send(&self, used: Option<GrantUsage>, ask: Option<GrantRequest>) -> Result<(), LinkError>;

    /// Waits for the answer to a [`GrantRequest`]: the quota in milliseconds. The grant page is up to date when this returns. Calls
    /// `prepare` once if the thread polls for the answer, shortly before it is expected.
    ///
    /// # Errors
    /// [`LinkError::Silent`] as soon as the manager is silent.
    fn receive(&self, prepare: &dyn Fn()) -> Result<f64, LinkError>;

    /// The grant's deadline in ticks; 0 without a grant, `u64::MAX` for an unlimited grant. One acquiring load.
    fn deadline_ticks(&self) -> u64;

    /// The grant's deadline as CLOCK_MONOTONIC nanoseconds; 0 without a grant, `u64::MAX` for an unlimited grant.
    fn deadline_ns(&self) -> u64;

    /// Whether another client waits for the GPU; without a grant, whether one did at the end of the last grant.
    fn contended(&self) -> bool;

    /// Whether the limit of this client ends its grants, also while no other client waits.
    fn limited(&self) -> bool;

    /// When the token is expected to pass from or to this process, as CLOCK_MONOTONIC nanoseconds; 0 if that is not known.
    fn hand_off_ns(&self) -> u64 {
        0
    }

    /// Whether launches are blocked while the manager is away, by the manager's choice; `None` if it was never attached.
    fn fail_closed(&self) -> Option<bool>;

    /// Announces driver handles that have not been announced yet, if there are any. Called often, with a lock held: it must not call the
    /// driver.
    ///
    /// # Errors
    /// The connection cannot be used any longer.
    fn announce(&self) -> Result<(), LinkError> {
        Ok(())
    }

    /// Reports whether there is GPU work that is not known to have finished, since `now_ns`. Never called by two threads at once.
    fn set_activity(&self, busy: bool, now_ns: u64);

    /// Reports since when all work only waits, or that it does not, or not any more. Never called by two threads at once, and after
    /// [`Self::set_activity`].
    fn report_waits(&self, since_ns: Option<u64>);

    /// Reports since when several contexts of the process have had work at the same time; `None`: they have not.
    fn report_contexts_at_once(&self, since_ns: Option<u64>);

    /// Whether other clients contend for the GPU, which the manager divides by the channel groups of this best-effort process and of theirs.
    /// Called before each copy: it must not be slow.
    fn has_hardware_contenders(&self) -> bool;

    /// Number of other clients that contend for the GPU, as the manager reports it.
    fn contenders(&self) -> u64;

    /// The number of contenders; `None` if this process is not latency-critical.
    fn critical_contenders(&self) -> Option<u64>;

    /// The time slices of best-effort clients that are in force, as the manager reports them.
    fn slices(&self) -> Slices;

    /// Whether a launch of this latency-critical process takes the GPU from best-effort clients at once, as the manager reports.
    fn takes_gpu(&self) -> bool;

    /// Reports which time slices best-effort clients should have beside this process.
    fn report_slices(&self, report: SliceReport);

    /// Wakes the manager if it has asked for that: work arrived on an idle process. Called after [`Self::set_activity`].
    fn wake_manager(&self);

    /// Whether this process is latency-critical, as the manager reports it.
    fn is_latency_critical(&self) -> bool {
        false
    }

    /// Work of clients with an earlier deadline, as the manager reports it. One acquiring load.
    fn urgent_work(&self) -> UrgentWork {
        UrgentWork::None
    }

    /// Waits until the urgent work is not `seen` any more, for at most `timeout_ns`. It may return earlier.
    fn wait_for_urgent_work(&self, _seen: UrgentWork, _timeout_ns: u64) {}

    /// Reports whether launches are postponed because of urgent work, and the time for which one was. Wakes the manager if they are, so
    /// that it reads often when the urgent work ends.
    fn report_postponed(&self, _postponed: bool, _waited_ns: u64) {}

    /// Reports when the next request is expected and how long requests last.
    fn report_forecast(&self, _forecast: RequestForecast) {}

    /// Latency goal of the client, in nanoseconds, as the manager reports it; 0: none.
    fn slo_ns(&self) -> u64 {
        0
    }

    /// Reports how long a step or a request took.
    fn report_latency(&self, _measured: Measured) {}

    /// Publishes the GPU time that this process used since it started, in nanoseconds.
    fn report_busy(&self, busy_ns: u64);
}

/// The memory connection to one manager.
pub trait MemoryLink: Debug {
    /// Connects and attaches, and reports how many bytes this process holds.
    fn connect(&self, used_bytes: u64) -> Result<(), LinkError>;

    /// Whether there is a connection that has not broken.
    fn is_alive(&self) -> bool;

    /// (used, limit) in bytes, over all processes of the client.
    fn usage(&self) -> Result<(u64, u64), LinkError>;

    /// Whether the process that NVML reports under this number is of the same client.
    fn owns_process(&self, pid: u32) -> Result<bool, LinkError>;

    /// Reserves `bytes` more; `false` if they do not fit.
    fn reserve(&self, bytes: u64) -> Result<bool, LinkError>;

    /// Releases `bytes`.
    fn release(&self, bytes: u64) -> Result<(), LinkError>;
}
