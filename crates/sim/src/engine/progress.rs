//! Begin and end of commands, and the earliest time at which a command can be completed.

use super::copies::{Channel, Copy};
use super::group::{Access, Task};
use super::hold::Hold;
use super::stream::{Op, Progress};
use super::{Advanced, Command, CopyEngine, Engine, GroupId, OwnerId, Record, StreamId, Work};
use crate::params;
use std::cmp::Reverse;

impl Engine {
    /// Begins the first command of a stream if nothing prevents it.
    pub(super) fn begin_if_ready(&mut self, id: StreamId) {
        let completed_of = |id: &StreamId| self.streams.get(id).map_or(u64::MAX, |stream| stream.completed);
        let Some(op) = self.streams.get(&id).and_then(|stream| stream.queue.front()) else { return };
        if !matches!(op.progress, Progress::Waiting) {
            return;
        }
        if op.arrival > self.now {
            let arrival = op.arrival;
            let serial = self.id();
            self.arrivals.push(Reverse((arrival, serial, id)));
            return;
        }
        let missing = op.dependencies.iter().find(|(other, seq)| completed_of(other) < *seq).copied();
        match missing {
            None if self.is_suspended(id) => {}
            None => self.begin(id),
            Some((other, seq)) => {
                if let Some(other) = self.streams.get_mut(&other) {
                    other.waiters.push((seq, id));
                }
            }
        }
    }

    /// Whether a stream's group is not enabled. If so, its command is checked again when the group is enabled.
    fn is_suspended(&mut self, id: StreamId) -> bool {
        let Some(stream) = self.streams.get(&id) else { return false };
        let group = self.runlist.groups.get_mut(&stream.group);
        let Some(group) = group.filter(|group| group.access != Access::Enabled) else { return false };
        group.suspended.push(id);
        true
    }

    fn begin(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let group = stream.group;
        let waits_for_gpu = self.runlist.is_taken_from(group);
        let Some(op) = stream.queue.front_mut() else { return };
        let command = op.command.clone();
        let (left, indegrees) = match &command {
            Command::Work(_) | Command::Host | Command::MemOp(_) => (1, Vec::new()),
            Command::Graph(graph) => (graph.nodes.len(), graph.indegrees.clone()),
            Command::Record { .. } if waits_for_gpu => (1, Vec::new()),
            Command::Record { .. } | Command::Wait { .. } => (0, Vec::new()),
        };
        let roots: Vec<usize> = (0..indegrees.len()).filter(|node| indegrees[*node] == 0).collect();
        op.progress = Progress::Begun { left, indegrees };
        match command {
            Command::Work(work) => self.begin_work(id, 0, work),
            Command::Graph(graph) => {
                for node in roots {
                    self.begin_work(id, node, graph.nodes[node].work);
                }
            }
            Command::Record { .. } if waits_for_gpu => self.push_record(id, group),
            Command::Record { tag } => self.records.push(Record { stream: id, tag, at_ns: self.now }),
            Command::MemOp(_) => self.mem_op(id),
            Command::Wait { .. } | Command::Host => {}
        }
        self.complete_if_done(id);
    }

    fn begin_work(&mut self, id: StreamId, node: usize, work: Work) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (group, priority, ns) = (stream.group, stream.priority, work.ns());
        let task = Task {
            stream: id,
            node,
            ns,
            sms: params::SMS,
            name: None,
            priority,
            hold: None,
            collective: None,
        };
        match work {
            Work::Kernel { sms, name, .. } => {
                let sms = sms.clamp(1, params::SMS);
                self.push(group, Task { sms, name: Some(name), ..task });
            }
            Work::Collective { rank, sms, name, .. } => {
                let sms = sms.clamp(1, params::SMS);
                self.push(group, Task { sms, name: Some(name), collective: Some(rank), ..task });
            }
            Work::Hold { address, params, name, times } => {
                let hold = Some(Hold::new(address, params, times));
                // One thread leaves room for the blocks of other kernels: M §17, decoding was not slower with two hold kernels.
                self.push(group, Task { sms: 0, name: Some(name), hold, ..task });
            }
            Work::Fill { .. } => self.push(group, task),
            Work::Copy { engine, .. } => {
                self.copies.push(engine, Channel::Group(group), Copy::new(Some((id, node)), ns));
            }
            Work::Empty => self.node_done(id, node),
        }
    }

    /// A record of a context that does not have the GPU is made when it has it: M §2.
    fn push_record(&mut self, id: StreamId, group: GroupId) {
        let priority = self.streams.get(&id).map_or(0, |stream| stream.priority);
        let task =
            Task { stream: id, node: 0, ns: 1, sms: 0, name: None, priority, hold: None, collective: None };
        self.push(group, task);
    }

    fn push(&mut self, group: GroupId, task: Task) {
        if let Some(group) = self.runlist.groups.get_mut(&group) {
            group.push(task);
        }
    }

    /// Records the begin of hold kernels, which then read their word for the first time.
    pub(super) fn holds_began(&mut self, holds: &[Task]) {
        for (task, hold) in holds.iter().filter_map(|task| Some((task, task.hold?))) {
            self.records.push(Record { stream: task.stream, tag: hold.times[0], at_ns: self.now });
            let owner = self.streams.get(&task.stream).and_then(|stream| self.owner(stream.group));
            if let Some(owner) = owner {
                self.show_word(owner, hold.address, self.words.value(owner, hold.address));
            }
        }
    }

    pub(super) fn task_done(&mut self, task: Task) {
        if let Some(hold) = task.hold {
            let at_ns = hold.idle_until(self.now);
            self.records.push(Record { stream: task.stream, tag: hold.times[2], at_ns });
        }
        let stream = self.streams.get(&task.stream);
        if let Some(Command::Record { tag }) =
            stream.and_then(|stream| stream.queue.front()).map(|op| &op.command)
        {
            self.records.push(Record { stream: task.stream, tag: *tag, at_ns: self.now });
        }
        let owner = stream.and_then(|stream| self.owner(stream.group));
        if let (Some(owner), Some(name)) = (owner, task.name) {
            self.account.completed(owner, name, task.ns, self.now);
        }
        self.work_done(task.stream, task.node);
    }

    pub(super) fn copy_done(&mut self, channel: Channel, copy: Copy) {
        let owner = match channel {
            Channel::Driver => None,
            Channel::Group(group) => self.owner(group),
        };
        if let Some(owner) = owner {
            self.account.copied(owner, copy.ns);
        }
        if let Some((stream, node)) = copy.node {
            self.work_done(stream, node);
        }
    }

    /// Occupies the copy engine into the GPU with the driver's work for memory that a process allocates or frees. The call does not wait for
    /// it here, so a process that does nothing else would queue it without end: only one further piece waits.
    pub fn memory_changes(&mut self, bytes: u64) {
        let ns = bytes.saturating_mul(1_000) / params::ALLOCATION_BYTES_PER_US;
        let engine = CopyEngine::ToDevice;
        if ns > 0 && self.copies.count(engine, Channel::Driver) < 2 {
            let copy = Copy::new(None, ns.min(params::COPY_TIMESLICE_NS));
            self.copies.push(engine, Channel::Driver, copy);
            self.settle();
        }
    }

    fn owner(&self, group: GroupId) -> Option<OwnerId> {
        self.runlist.groups.get(&group).map(|group| group.owner)
    }

    fn work_done(&mut self, id: StreamId, node: usize) {
        self.node_done(id, node);
        self.complete_if_done(id);
    }

    /// Counts a node of the first command as done and begins the nodes that waited for it.
    fn node_done(&mut self, id: StreamId, node: usize) {
        let Some(op) = self.streams.get_mut(&id).and_then(|stream| stream.queue.front_mut()) else { return };
        let Progress::Begun { left, indegrees } = &mut op.progress else { return };
        *left = left.saturating_sub(1);
        let Command::Graph(graph) = &op.command else { return };
        let graph = graph.clone();
        let mut ready = Vec::new();
        for &successor in &graph.nodes[node].successors {
            indegrees[successor] -= 1;
            if indegrees[successor] == 0 {
                ready.push(successor);
            }
        }
        for successor in ready {
            self.begin_work(id, successor, graph.nodes[successor].work);
        }
    }

    /// Removes the first command of a stream if it is done.
    pub(super) fn complete_if_done(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let done = |op: &mut Op| matches!(op.progress, Progress::Begun { left: 0, .. });
        let relaunches =
            |op: &mut Op| matches!(&op.command, Command::Graph(graph) if graph.relaunches) && done(op);
        if stream.queue.front_mut().is_some_and(relaunches) {
            return self.begin(id);
        }
        let Some(op) = stream.queue.pop_front_if(done) else { return };
        stream.completed = op.seq;
        self.advanced.push(Advanced { stream: id, seq: op.seq });
        self.to_check.extend(stream.released());
        if !stream.queue.is_empty() {
            self.to_check.push_back(id);
        } else if stream.closed {
            self.forget(id);
        }
    }

    /// The shortest time until a group's kernels can continue.
    fn least_wait(&self, group: GroupId) -> u64 {
        // The forecast ends at the next control, because a control may change it.
        let until_control = self.controls.next_event().map(|at| at.saturating_sub(self.now));
        self.runlist.least_wait(group, self.now).into_iter().chain(until_control).min().unwrap_or(u64::MAX)
    }

    /// A time before which a stream cannot complete `seq`, whatever is submitted; `None` if it has completed `seq` or does not exist.
    pub fn earliest(&self, id: StreamId, seq: u64) -> Option<u64> {
        let stream = self.streams.get(&id).filter(|stream| stream.completed < seq)?;
        let wait = self.least_wait(stream.group);
        let group = self.runlist.groups.get(&stream.group);
        let is_stopped = group.is_some_and(|group| group.access != Access::Enabled);
        let running = group.map(|group| &group.running);
        let mut ns = 0u64;
        for op in stream.queue.iter().take_while(|op| op.seq <= seq) {
            let left = match op.progress {
                Progress::Waiting => {
                    ns = ns.max(op.arrival.saturating_sub(self.now));
                    op.command.least_ns()
                }
                // Of the commands in progress, only a kernel's time is known directly.
                Progress::Begun { .. } => {
                    let mine = running.into_iter().flatten().find(|running| running.task.stream == id);
                    mine.filter(|mine| matches!(op.command, Command::Work(_)) && mine.task.hold.is_none())
                        .map_or(0, |running| running.left_ns)
                }
            };
            let is_suspended = is_stopped && matches!(op.progress, Progress::Waiting);
            let wait = if op.command.needs_slice() || is_suspended { wait } else { 0 };
            ns = match (&op.command, &op.progress) {
                // Which of a graph's nodes wait for the time slice is not examined: some may run without it.
                (Command::Graph(_), Progress::Waiting) => ns.saturating_add(left).max(wait),
                (Command::Graph(_), Progress::Begun { .. }) => ns,
                _ => ns.max(wait).saturating_add(left),
            };
        }
        Some(self.now.saturating_add(ns))
    }
}
