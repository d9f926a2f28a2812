//! The state of one queue behind the table's lock.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::command::{Command, Work};
use crate::config::{Config, PreemptionLevel};
use crate::driver::GateProgress;
use crate::events::GenerationId;
use crate::ids::{Code, Event, QueueId, Stream};
use crate::queue::Queue;
use crate::stream_state::{StreamState, Transition};

/// An operation that waits in a host queue.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A command of the program.
    Command(Command),
    /// The record of this generation.
    Record(GenerationId),
    /// A wait for this generation.
    Wait(GenerationId),
    /// A thread that makes its call itself when its position comes.
    ByCaller,
}

impl Operation {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Command(command) => command.bytes(),
            _ => 0,
        }
    }

    pub(crate) fn work(&self) -> Work {
        match self {
            Self::Command(command) => command.work(),
            _ => Work::Small,
        }
    }

    /// The executable graph that it uses.
    pub(crate) fn graph(&self) -> Option<u64> {
        match self {
            Self::Command(command) => command.graph(),
            _ => None,
        }
    }
}

/// An operation and the positions in other queues that it has to follow.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) operation: Operation,
    pub(crate) after: Vec<(QueueId, u64)>,
}

/// A preemption: its end, and what is in force.
#[derive(Debug, Default)]
pub(crate) struct Preemption {
    /// When it began.
    pub(crate) since_ns: u64,
    /// When it ends without a `restore`.
    pub(crate) until_ns: Option<u64>,
    /// The level in force.
    pub(crate) level: Option<PreemptionLevel>,
    /// An event behind everything that was submitted before.
    pub(crate) fence: Option<Event>,
    /// The last known progress of the stream with its gates, and when it was first observed.
    pub(crate) seen: Option<(GateProgress, u64)>,
}

/// Control of the queue's channel group: the wanted state, the actual state, and whether a thread is changing it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupControl {
    pub(crate) disable_wanted: bool,
    pub(crate) disabled: bool,
    pub(crate) changing: bool,
}

/// Whether calls on a stream may be recorded into a graph. If so, the worker asks the driver before it submits.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    /// Calls may be recorded.
    pub(crate) possible: bool,
    /// Threads whose call that begins a capture has not returned: the driver does not know of the capture yet.
    pub(crate) starting: u32,
    /// Number of captures begun. An answer of the driver from before the last one is outdated.
    pub(crate) started: u64,
}

/// Observation of a stream for the idle notice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleWatch {
    /// The progress count at the last observation.
    pub(crate) progress_count: u64,
    /// When it was first observed.
    pub(crate) since_ns: u64,
    /// Whether the notice was sent since then.
    pub(crate) notified: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct QueueState {
    pub(crate) queue: Arc<Queue>,
    /// `None` while preemption is not enabled.
    pub(crate) config: Option<Config>,
    pub(crate) state: StreamState,
    /// Counts `preempt` and `restore` calls; the last call wins.
    pub(crate) epoch: u64,
    pub(crate) preemption: Preemption,
    /// Threads that use the stream, its marks or its fence in the driver without the table's lock. While there is
    /// one, neither these nor their context are destroyed.
    pub(crate) driver_uses: u32,
    /// Replaced fences; the last such thread destroys them.
    pub(crate) stale_fences: Vec<Event>,
    pub(crate) group_control: GroupControl,
    pub(crate) pending: VecDeque<Entry>,
    bytes: usize,
    /// Positions assigned.
    pub(crate) accepted: u64,
    /// Positions submitted.
    pub(crate) submitted: u64,
    /// An operation is on its way to the driver.
    pub(crate) submitting: bool,
    /// The position of the caller that may make its call now.
    pub(crate) admitted_caller: Option<u64>,
    /// Positions below this are submitted although the queue is preempted, because a running queue waits for them.
    pub(crate) released_below: u64,
    pub(crate) capture: Capture,
    /// The program has destroyed the stream.
    pub(crate) closing: bool,
    /// The error of a deferred command, until a call returns it.
    pub(crate) deferred_error: Option<Code>,
    pub(crate) idle: IdleWatch,
}

impl QueueState {
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        Self {
            queue,
            config: None,
            state: StreamState::Running,
            epoch: 0,
            preemption: Preemption::default(),
            driver_uses: 0,
            stale_fences: Vec::new(),
            group_control: GroupControl::default(),
            pending: VecDeque::new(),
            bytes: 0,
            accepted: 0,
            submitted: 0,
            submitting: false,
            admitted_caller: None,
            released_below: 0,
            capture: Capture::default(),
            closing: false,
            deferred_error: None,
            idle: IdleWatch { progress_count: 0, since_ns: 0, notified: true },
        }
    }

    pub(crate) fn id(&self) -> QueueId {
        self.queue.id()
    }

    pub(crate) fn stream(&self) -> Stream {
        self.queue.stream()
    }

    /// Applies a transition; one that is not possible changes nothing.
    pub(crate) fn apply(&mut self, transition: Transition) {
        self.state = self.state.after(transition).unwrap_or(self.state);
    }

    /// Whether nothing is pending or on its way.
    pub(crate) fn is_drained(&self) -> bool {
        self.pending.is_empty() && !self.submitting
    }

    /// Whether a stream that the program has destroyed has nothing left to do. This never reverts. The driver's
    /// stream is destroyed without the table's lock, so its handle may already refer to another stream.
    pub(crate) fn is_finished(&self) -> bool {
        self.closing && self.is_drained() && self.state == StreamState::Running
    }

    /// Whether the queue's own state allows the operation at `position` to go.
    pub(crate) fn may_submit(&self, position: u64) -> bool {
        self.state == StreamState::Running || position < self.released_below
    }

    /// Whether a submitter has to wait before it adds `bytes`.
    pub(crate) fn is_full(&self, bytes: usize) -> bool {
        let limits = self.config.unwrap_or_default();
        self.pending.len() >= limits.host_commands
            || (!self.pending.is_empty() && self.bytes.saturating_add(bytes) > limits.host_bytes)
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.bytes += entry.operation.bytes();
        self.pending.push_back(entry);
        self.accepted += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.pending.pop_front()?;
        self.bytes -= entry.operation.bytes();
        Some(entry)
    }

    /// Keeps the first error not yet returned, or the one that lost the context.
    pub(crate) fn record_error(&mut self, code: Code) {
        if self.deferred_error.is_none_or(|known| code.is_sticky() && !known.is_sticky()) {
            self.deferred_error = Some(code);
        }
    }

    /// Keeps the error of one of the engine's own calls if it lost the context: no queued command would reach the
    /// driver and return it.
    pub(crate) fn record_if_sticky<T>(&mut self, result: Result<T, Code>) {
        if let Some(code) = result.err().filter(|code| code.is_sticky()) {
            self.record_error(code);
        }
    }

    /// The deferred error: returned once, or always if it is sticky.
    pub(crate) fn take_error(&mut self) -> Option<Code> {
        let code = self.deferred_error?;
        if !code.is_sticky() {
            self.deferred_error = None;
        }
        Some(code)
    }
}
