//! Streams: commands in order, each waiting for those before it and for those of other streams that it depends on.

use super::{Command, GroupId, StreamId, StreamKind};
use std::collections::VecDeque;

/// How far a command has come.
#[derive(Debug)]
pub(super) enum Progress {
    /// Not begun.
    Waiting,
    /// Begun: this many of its nodes are not done, and each node waits for so many others.
    Begun { left: usize, indegrees: Vec<usize> },
}

/// A command in a stream.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) seq: u64,
    /// When the GPU can see it.
    pub(super) arrival: u64,
    /// Commands of other streams that come first.
    pub(super) dependencies: Vec<(StreamId, u64)>,
    pub(super) command: Command,
    pub(super) progress: Progress,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) group: GroupId,
    pub(super) kind: StreamKind,
    /// CUDA's: smaller goes first.
    pub(super) priority: i32,
    pub(super) queue: VecDeque<Op>,
    /// Number of the last command put in.
    pub(super) submitted: u64,
    /// Number of the last command done.
    pub(super) completed: u64,
    /// Streams whose first command waits for this one to get to a number.
    pub(super) waiters: Vec<(u64, StreamId)>,
    /// Goes away when empty.
    pub(super) closed: bool,
}

impl Stream {
    pub(super) fn new(group: GroupId, kind: StreamKind, priority: i32, last_seq: u64) -> Self {
        Self {
            group,
            kind,
            priority,
            queue: VecDeque::new(),
            submitted: last_seq,
            completed: last_seq,
            waiters: Vec::new(),
            closed: false,
        }
    }

    /// The streams that may have waited for what has been done.
    pub(super) fn released(&mut self) -> Vec<StreamId> {
        let completed = self.completed;
        self.waiters.extract_if(.., |(seq, _)| *seq <= completed).map(|(_, stream)| stream).collect()
    }
}
