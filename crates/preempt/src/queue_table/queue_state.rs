//! One queue's page in the table.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::command::{Command, Work};
use crate::config::{Config, PreemptionLevel};
use crate::driver::GateProgress;
use crate::events::GenerationId;
use crate::ids::{Code, Event, QueueId};
use crate::queue::Queue;
use crate::stream_state::StreamState;

/// What waits in a host queue.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A command of the program's.
    Command(Command),
    /// The record of this generation.
    Record(GenerationId),
    /// A wait for this generation.
    Wait(GenerationId),
    /// A caller that makes its call itself.
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
}

/// A command with what it has to come after: positions in other queues.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) operation: Operation,
    pub(crate) after: Vec<(QueueId, u64)>,
}

/// A preemption: until when, and what is in force.
#[derive(Debug, Default)]
pub(crate) struct Preemption {
    /// When it began.
    pub(crate) since_ns: u64,
    /// When it ends by itself.
    pub(crate) until_ns: Option<u64>,
    /// The level in force.
    pub(crate) level: Option<PreemptionLevel>,
    /// Behind everything that was submitted before.
    pub(crate) fence: Option<Event>,
    /// How far the stream had come with its gates when it was last looked at, and when that was first seen.
    pub(crate) seen: Option<(GateProgress, u64)>,
}

/// The slices of a queue: what is wanted, what is, and whether somebody is at it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupControl {
    pub(crate) disable_wanted: bool,
    pub(crate) disabled: bool,
    pub(crate) changing: bool,
}

/// Whether calls on a stream may be recorded into a graph: then the worker asks before it submits.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    /// They may.
    pub(crate) possible: bool,
    /// Threads whose call that begins a capture has not come back: the driver does not know of it yet.
    pub(crate) starting: u32,
    /// How often one began: an answer of the driver's from before is none.
    pub(crate) started: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct QueueState {
    pub(crate) queue: Arc<Queue>,
    /// `None` while preemption is not enabled.
    pub(crate) config: Option<Config>,
    pub(crate) state: StreamState,
    /// Counts `preempt` and `restore`: the last one wins.
    pub(crate) epoch: u64,
    pub(crate) preemption: Preemption,
    /// While it is held it stands aside for calls that wait for the whole context.
    pub(crate) yields_to_loads: bool,
    /// Threads that use the stream, its marks or its fence in the driver, without the table: none of them may be destroyed, nor their
    /// context.
    pub(crate) driver_uses: u32,
    /// Fences that were given up meanwhile, to be destroyed by the last of them.
    pub(crate) stale_fences: Vec<Event>,
    pub(crate) group_control: GroupControl,
    pub(crate) pending: VecDeque<Entry>,
    bytes: usize,
    /// Positions given away.
    pub(crate) accepted: u64,
    /// Positions handed over.
    pub(crate) submitted: u64,
    /// A command is on its way to the driver.
    pub(crate) submitting: bool,
    /// The turn that has come: its caller may go.
    pub(crate) admitted_caller: Option<u64>,
    /// Positions below this go although the queue is preempted: a running queue waits for them.
    pub(crate) released_below: u64,
    pub(crate) capture: Capture,
    /// The program has destroyed the stream.
    pub(crate) closing: bool,
    /// What the driver said to a deferred command, until somebody is told.
    pub(crate) deferred_error: Option<Code>,
    /// For the idle notice: what was last seen, when, and whether it was told.
    pub(crate) idle: (u64, u64, bool),
}

impl QueueState {
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        Self {
            queue,
            config: None,
            state: StreamState::Running,
            epoch: 0,
            preemption: Preemption::default(),
            yields_to_loads: false,
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
            idle: (0, 0, true),
        }
    }

    /// Nothing waits, and nothing is on its way.
    pub(crate) fn is_drained(&self) -> bool {
        self.pending.is_empty() && !self.submitting
    }

    /// Whether nothing of a stream that the program has destroyed is left to do. It stays so, and the driver's stream is destroyed
    /// without the table: its handle may mean another one by now.
    pub(crate) fn is_finished(&self) -> bool {
        self.closing && self.is_drained() && self.state == StreamState::Running
    }

    /// Whether the command at `position` may go, as far as this queue's state is concerned.
    pub(crate) fn may_submit(&self, position: u64) -> bool {
        self.state == StreamState::Running || position < self.released_below
    }

    /// Whether a submitter has to wait before it adds so many bytes.
    pub(crate) fn is_full(&self, bytes: usize) -> bool {
        let limits = self.config.unwrap_or_default();
        self.pending.len() >= limits.host_commands
            || (!self.pending.is_empty() && self.bytes.saturating_add(bytes) > limits.host_bytes)
    }

    pub(crate) fn push(&mut self, entry: Entry) -> u64 {
        self.bytes += entry.operation.bytes();
        self.pending.push_back(entry);
        self.accepted += 1;
        self.accepted - 1
    }

    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.pending.pop_front()?;
        self.bytes -= entry.operation.bytes();
        Some(entry)
    }

    /// Keeps the first error that nobody was told, or the one that the context was lost with.
    pub(crate) fn record_error(&mut self, code: Code) {
        if self.deferred_error.is_none_or(|known| code.is_sticky() && !known.is_sticky()) {
            self.deferred_error = Some(code);
        }
    }

    /// Likewise, for what a call of the engine's own was told: nothing that is queued would reach the driver and hear of it.
    pub(crate) fn record_if_sticky<T>(&mut self, result: Result<T, Code>) {
        if let Some(code) = result.err().filter(|code| code.is_sticky()) {
            self.record_error(code);
        }
    }

    /// The deferred error, told once, or always if it is sticky.
    pub(crate) fn take_error(&mut self) -> Option<Code> {
        let code = self.deferred_error?;
        if !code.is_sticky() {
            self.deferred_error = None;
        }
        Some(code)
    }
}
