//! One queue's page in the book.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::command::{Command, Work};
use crate::config::{Config, Level};
use crate::driver::Progress;
use crate::events::GenerationId;
use crate::ids::{Code, Event, QueueId};
use crate::queue::Queue;
use crate::state::State;

/// What waits in a host queue.
#[derive(Debug)]
pub(crate) enum What {
    /// A command of the program's.
    Command(Command),
    /// The record of this generation.
    Record(GenerationId),
    /// A wait for this generation.
    Wait(GenerationId),
    /// A caller that makes its call itself.
    Turn,
}

impl What {
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
    pub(crate) what: What,
    pub(crate) after: Vec<(QueueId, u64)>,
}

/// A preemption: until when, and what is in force.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// When it began.
    pub(crate) since_ns: u64,
    /// When it ends by itself.
    pub(crate) until_ns: Option<u64>,
    /// The level in force.
    pub(crate) level: Option<Level>,
    /// Behind everything that was submitted before.
    pub(crate) fence: Option<Event>,
    /// How far the stream had come with its gates when it was last looked at, and when that was first seen.
    pub(crate) seen: Option<(Progress, u64)>,
}

/// The slices of a queue: what is wanted, what is, and whether somebody is at it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sliced {
    pub(crate) wanted: bool,
    pub(crate) held: bool,
    pub(crate) busy: bool,
}

/// Whether calls on a stream may be recorded into a graph: then the worker asks before it submits.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    /// They may.
    pub(crate) possible: bool,
    /// Threads whose call that begins a capture has not come back: the driver does not know of it yet.
    pub(crate) beginning: u32,
    /// How often one began: an answer of the driver's from before is none.
    pub(crate) begun: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) queue: Arc<Queue>,
    /// `None` while preemption is not enabled.
    pub(crate) config: Option<Config>,
    pub(crate) state: State,
    /// Counts `preempt` and `restore`: the last one wins.
    pub(crate) epoch: u64,
    pub(crate) hold: Hold,
    /// While it is held it stands aside for calls that wait for the whole context.
    pub(crate) yields: bool,
    /// Threads that use the stream, its marks or its fence in the driver, without the book: none of them may be destroyed, nor their
    /// context.
    pub(crate) looking: u32,
    /// Fences that were given up meanwhile, to be destroyed by the last of them.
    pub(crate) stale: Vec<Event>,
    pub(crate) sliced: Sliced,
    pub(crate) waiting: VecDeque<Entry>,
    bytes: usize,
    /// Positions given away.
    pub(crate) accepted: u64,
    /// Positions handed over.
    pub(crate) submitted: u64,
    /// A command is on its way to the driver.
    pub(crate) busy: bool,
    /// The turn that has come: its caller may go.
    pub(crate) turn: Option<u64>,
    /// Positions below this go although the queue is preempted: a running queue waits for them.
    pub(crate) released: u64,
    pub(crate) capture: Capture,
    /// The program has destroyed the stream.
    pub(crate) closing: bool,
    /// What the driver said to a deferred command, until somebody is told.
    pub(crate) error: Option<Code>,
    /// For the idle notice: what was last seen, when, and whether it was told.
    pub(crate) idle: (u64, u64, bool),
}

impl Lane {
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        Self {
            queue,
            config: None,
            state: State::Running,
            epoch: 0,
            hold: Hold::default(),
            yields: false,
            looking: 0,
            stale: Vec::new(),
            sliced: Sliced::default(),
            waiting: VecDeque::new(),
            bytes: 0,
            accepted: 0,
            submitted: 0,
            busy: false,
            turn: None,
            released: 0,
            capture: Capture::default(),
            closing: false,
            error: None,
            idle: (0, 0, true),
        }
    }

    /// Nothing waits, and nothing is on its way.
    pub(crate) fn is_drained(&self) -> bool {
        self.waiting.is_empty() && !self.busy
    }

    /// Whether nothing of a stream that the program has destroyed is left to do. It stays so, and the driver's stream is destroyed
    /// without the book: its handle may mean another one by now.
    pub(crate) fn is_over(&self) -> bool {
        self.closing && self.is_drained() && self.state == State::Running
    }

    /// Whether the command at `position` may go, as far as this queue's state is concerned.
    pub(crate) fn may_go(&self, position: u64) -> bool {
        self.state == State::Running || position < self.released
    }

    /// Whether a submitter has to wait before it adds so many bytes.
    pub(crate) fn is_full(&self, bytes: usize) -> bool {
        let limits = self.config.unwrap_or_default();
        self.waiting.len() >= limits.host_commands
            || (!self.waiting.is_empty() && self.bytes.saturating_add(bytes) > limits.host_bytes)
    }

    pub(crate) fn push(&mut self, entry: Entry) -> u64 {
        self.bytes += entry.what.bytes();
        self.waiting.push_back(entry);
        self.accepted += 1;
        self.accepted - 1
    }

    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.waiting.pop_front()?;
        self.bytes -= entry.what.bytes();
        Some(entry)
    }

    /// Keeps the first error that nobody was told, or the one that the context was lost with.
    pub(crate) fn fail(&mut self, code: Code) {
        if self.error.is_none_or(|known| code.is_sticky() && !known.is_sticky()) {
            self.error = Some(code);
        }
    }

    /// Likewise, for what a call of the engine's own was told: nothing that is queued would reach the driver and hear of it.
    pub(crate) fn fail_if_lost<T>(&mut self, result: Result<T, Code>) {
        if let Some(code) = result.err().filter(|code| code.is_sticky()) {
            self.fail(code);
        }
    }

    /// The deferred error, told once, or always if it is sticky.
    pub(crate) fn tell(&mut self) -> Option<Code> {
        let code = self.error?;
        if !code.is_sticky() {
            self.error = None;
        }
        Some(code)
    }
}
