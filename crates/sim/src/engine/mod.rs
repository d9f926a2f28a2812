//! The GPU: a discrete-event timeline in nanoseconds.
//!
//! Commands come with the time at which they were submitted; [`Engine::advance`] computes everything up to a time. The
//! engine neither reads a clock nor sleeps, and knows processes only as [`OwnerId`]s, so tests step it.

mod account;
mod collective;
mod command;
mod control;
mod copies;
mod group;
mod hold;
mod interconnect;
mod progress;
mod reported_memory;
mod runlist;
mod stream;
#[cfg(test)]
mod tests;
mod word;

pub use account::Account;
pub use collective::CollectiveRank;
pub use command::{
    Command, CopyEngine, Graph, GroupId, HoldParams, Node, OwnerId, StreamId, StreamKind, Work,
};
pub use control::Control;
pub use group::{Access, Switches};
pub use interconnect::Interconnect;
pub use word::{Compare, Condition};

use crate::params;
use collective::Arrival;
use control::Controls;
use copies::Copies;
use group::Group;
use runlist::Runlist;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use stream::{Op, Progress, Stream};
use word::Words;

/// The report of a stream that has reached a [`Command::Record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The stream.
    pub stream: StreamId,
    /// The command's tag.
    pub tag: u64,
    /// The time at which the stream reached it.
    pub at_ns: u64,
}

/// The report that a command of a stream, and all commands before it, are completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advanced {
    /// The stream.
    pub stream: StreamId,
    /// Number of the command.
    pub seq: u64,
}

/// One simulated GPU.
#[derive(Debug, Default)]
pub struct Engine {
    now: u64,
    account: Account,
    streams: HashMap<StreamId, Stream>,
    runlist: Runlist,
    copies: Copies,
    controls: Controls,
    words: Words,
    /// First commands of streams that the GPU cannot see yet.
    arrivals: BinaryHeap<Reverse<(u64, u64, StreamId)>>,
    /// Streams whose first command may begin.
    to_check: VecDeque<StreamId>,
    advanced: Vec<Advanced>,
    records: Vec<Record>,
    /// Arrivals of collective kernels, until an [`Interconnect`] takes them.
    arrivals_of_ranks: Vec<Arrival>,
    next_id: u64,
}

impl Engine {
    /// A GPU with `memory_bytes` of memory, whose timeline begins at `now`.
    pub fn new(memory_bytes: u64, now: u64) -> Self {
        Self { now, account: Account::new(memory_bytes), ..Self::default() }
    }

    /// The time up to which everything is computed.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The accounts.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The accounts, to add processes and count memory.
    pub fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Adds a context with its time slice in nanoseconds.
    pub fn add_group(&mut self, owner: OwnerId, timeslice_ns: u64) -> GroupId {
        let id = GroupId(self.id());
        let timeslice_ns = timeslice_ns.max(1);
        self.runlist.groups.insert(id, Group::new(owner, timeslice_ns));
        id
    }

    /// Removes a context with everything in it, running or queued.
    pub fn remove_group(&mut self, group: GroupId) {
        self.runlist.remove(group);
        self.copies.remove(group);
        let gone: Vec<StreamId> =
            self.streams.iter().filter(|(_, stream)| stream.group == group).map(|(id, _)| *id).collect();
        for id in gone {
            self.forget(id);
        }
        self.settle();
    }

    /// Adds a stream. A smaller `priority` runs first, as in CUDA. Its commands are numbered from `last_seq + 1`.
    pub fn add_stream(&mut self, group: GroupId, kind: StreamKind, priority: i32, last_seq: u64) -> StreamId {
        let id = StreamId(self.id());
        self.streams.insert(id, Stream::new(group, kind, priority, last_seq));
        if let Some(group) = self.runlist.groups.get_mut(&group) {
            group.by_kind[kind as usize].insert(id);
        }
        id
    }

    /// Removes a stream as soon as its commands are completed.
    pub fn close_stream(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.closed = true;
            if stream.queue.is_empty() {
                self.forget(id);
                self.settle();
            }
        }
    }

    /// Removes a stream and releases the streams that wait for it.
    fn forget(&mut self, id: StreamId) {
        if let Some(mut stream) = self.streams.remove(&id) {
            if let Some(group) = self.runlist.groups.get_mut(&stream.group) {
                group.by_kind[stream.kind as usize].remove(&id);
            }
            stream.completed = u64::MAX;
            self.to_check.extend(stream.released());
        }
    }

    /// Number of the last completed command of a stream; `None` if there is no such stream.
    pub fn completed(&self, id: StreamId) -> Option<u64> {
        self.streams.get(&id).map(|stream| stream.completed)
    }

    /// Whether all streams of an owner are empty.
    pub fn is_idle(&self, owner: OwnerId) -> bool {
        let mut groups = self.runlist.groups.values().filter(|group| group.owner == owner);
        let is_empty = |id: &StreamId| self.streams.get(id).is_none_or(|stream| stream.queue.is_empty());
        groups.all(|group| group.streams().all(is_empty))
    }

    /// Puts a command, submitted at `at_ns`, into a stream. Returns its number, or `None` if the stream does not
    /// exist.
    ///
    /// A time before [`now`](Self::now) counts as that time.
    pub fn submit(&mut self, id: StreamId, at_ns: u64, command: Command) -> Option<u64> {
        let mut dependencies = self.default_stream_order(id)?;
        let takes_time = !matches!(command, Command::Wait { .. });
        if let Command::Wait { stream, seq } = command {
            dependencies.push((stream, seq));
        }
        let kernels = command.kernels();
        let stream = self.streams.get_mut(&id)?;
        stream.submitted += 1;
        let seq = stream.submitted;
        let arrival = at_ns.max(self.now) + if takes_time { params::SUBMIT_NS } else { 0 };
        stream.queue.push_back(Op { seq, arrival, dependencies, command, progress: Progress::Waiting });
        if let Some(group) = self.runlist.groups.get(&stream.group) {
            self.account.submitted(group.owner, kernels);
        }
        if stream.queue.len() == 1 {
            self.to_check.push_back(id);
        }
        Some(seq)
    }

    /// The commands for which a new command of this stream has to wait because of the legacy default stream.
    fn default_stream_order(&self, id: StreamId) -> Option<Vec<(StreamId, u64)>> {
        let stream = self.streams.get(&id)?;
        let group = self.runlist.groups.get(&stream.group)?;
        let others = match stream.kind {
            StreamKind::NonBlocking => return Some(Vec::new()),
            StreamKind::Legacy => StreamKind::Blocking,
            StreamKind::Blocking => StreamKind::Legacy,
        };
        let unfinished = |id: &StreamId| {
            let other = self.streams.get(id)?;
            (other.completed < other.submitted).then_some((*id, other.submitted))
        };
        Some(group.by_kind[others as usize].iter().filter_map(unfinished).collect())
    }

    /// Ends the [`Command::Host`] for which the stream is stopped: the host function has returned.
    pub fn host_done(&mut self, id: StreamId, seq: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(op) = stream.queue.front_mut() else { return };
        if op.seq == seq && op.command == Command::Host {
            match &mut op.progress {
                Progress::Begun { left, .. } => *left = 0,
                Progress::Waiting => return,
            }
            self.complete_if_done(id);
            self.settle();
        }
    }

    /// The time of the next event if nothing further is submitted.
    pub fn next_event(&mut self) -> Option<u64> {
        self.settle();
        let arrival = self.arrivals.peek().map(|Reverse((at, ..))| *at);
        let external = self.controls.next_event().into_iter().chain(self.words.next_event());
        let internal = [arrival, self.runlist.next_event(self.now), self.copies.next_event()];
        internal.into_iter().flatten().chain(external).min()
    }

    /// Computes the timeline up to and including `to`. A time before [`now`](Self::now) has no effect.
    pub fn advance(&mut self, to: u64) {
        while let Some(at) = self.next_event().filter(|at| *at <= to) {
            self.elapse(at);
            self.arrivals_of_ranks.extend(self.runlist.begin_next_parts());
            for task in self.runlist.finished() {
                self.task_done(task);
            }
            for (channel, copy) in self.copies.finished(self.now) {
                self.copy_done(channel, copy);
            }
            self.mem_ops_due();
            self.control_due();
            while self.arrivals.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
                self.to_check.extend(self.arrivals.pop().map(|Reverse((.., id))| id));
            }
        }
        self.elapse(to.max(self.now));
    }

    fn elapse(&mut self, to: u64) {
        if to == self.now {
            return self.account.at(to);
        }
        let ns = to - self.now;
        if self.runlist.is_switching(self.now) {
            self.account.switching(ns);
        }
        let ran = self.runlist.elapse(self.now, ns);
        if let Some(owner) = ran {
            self.account.ran(owner, self.now, to);
        }
        for owner in self.runlist.owners().filter(|owner| ran != Some(*owner)) {
            self.account.waited(owner, ns);
        }
        self.now = to;
        self.account.at(to);
    }

    /// Begins everything that can begin at this time.
    fn settle(&mut self) {
        while let Some(id) = self.to_check.pop_front() {
            self.begin_if_ready(id);
        }
        self.copies.settle(self.now);
        self.note_lone_hold();
        let changes = self.runlist.settle(self.now);
        if changes.switched {
            self.account.switched();
        }
        if let Some(owner) = changes.began {
            self.account.began(owner, self.now);
        }
        self.arrivals_of_ranks.extend(changes.arrivals);
        if !changes.holds.is_empty() {
            self.holds_began(&changes.holds);
            // The context may now run only hold kernels, and yield to another one.
            self.settle();
        }
    }

    /// Records the time since which the running context has run only hold kernels.
    fn note_lone_hold(&mut self) {
        let Some(id) = self.runlist.on() else { return };
        let Some(group) = self.runlist.groups.get(&id) else { return };
        let has_more = |stream: &StreamId| {
            self.streams
                .get(stream)
                .is_some_and(|stream| stream.queue.len() > 1 && stream.queue[1].arrival <= self.now)
        };
        let is_alone = group.runs_only_holds() && !group.streams().any(has_more);
        let since = is_alone.then(|| group.alone_since.unwrap_or(self.now));
        if let Some(group) = self.runlist.groups.get_mut(&id) {
            group.alone_since = since;
        }
    }

    /// The commands completed since the last call, in order of time.
    pub fn take_advanced(&mut self) -> Vec<Advanced> {
        std::mem::take(&mut self.advanced)
    }

    /// The records reached since the last call.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }
}
