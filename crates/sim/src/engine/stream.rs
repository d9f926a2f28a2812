//! Streams: commands in order. Each waits for those before it and for those of other streams on which it depends.

use super::{Command, GroupId, StreamId, StreamKind};
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) enum Progress {
    /// Not begun.
    Waiting,
    /// Begun: `left` nodes are not done, and `indegrees` counts the unfinished nodes for which each node waits.
    Begun { left: usize, indegrees: Vec<usize> },
}

#[derive(Debug)]
pub(super) struct Op {
    pub(super) seq: u64,
    /// The time from which on the GPU sees the command.
    pub(super) arrival: u64,
    /// Commands of other streams that come first.
    pub(super) dependencies: Vec<(StreamId, u64)>,
    pub(super) command: Command,
    pub(super) progress: Progress,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) group: GroupId,
    pub(super) kind: StreamKind,
    /// As in CUDA: the stream with the smaller number runs first.
    pub(super) priority: i32,
    pub(super) queue: VecDeque<Op>,
    /// Number of the last submitted command.
    pub(super) submitted: u64,
    /// Number of the last completed command.
    pub(super) completed: u64,
    /// Streams whose first command waits for this stream to reach a number.
    pub(super) waiters: Vec<(u64, StreamId)>,
    /// The stream is removed when empty.
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

    /// Removes and returns the streams whose wait is over.
    pub(super) fn released(&mut self) -> Vec<StreamId> {
        let completed = self.completed;
        self.waiters.extract_if(.., |(seq, _)| *seq <= completed).map(|(_, stream)| stream).collect()
    }
}
