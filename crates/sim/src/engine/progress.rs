//! How commands begin and end.

use super::copies::Copy;
use super::group::{Access, Hold, Task};
use super::stream::{Op, Progress};
use super::{Advanced, Command, Compare, Condition, Engine, GroupId, OwnerId, Record, StreamId, Work};
use crate::params;
use std::cmp::Reverse;

impl Engine {
    /// Begins the first command of a stream if nothing prevents it.
    pub(super) fn look_at(&mut self, id: StreamId) {
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
        let holding = op.dependencies.iter().find(|(other, seq)| completed_of(other) < *seq).copied();
        match holding {
            None if self.is_suspended(id) => {}
            None => self.begin(id),
            Some((other, seq)) => {
                if let Some(other) = self.streams.get_mut(&other) {
                    other.waiters.push((seq, id));
                }
            }
        }
    }

    /// Whether a stream's group may not run. Its command is checked again when the group may.
    fn is_suspended(&mut self, id: StreamId) -> bool {
        let Some(stream) = self.streams.get(&id) else { return false };
        let group = self.runlist.groups.get_mut(&stream.group);
        let Some(group) = group.filter(|group| group.access != Access::Enabled) else { return false };
        group.suspended.push(id);
        true
    }

    /// Begins the first command of a stream.
    fn begin(&mut self, id: StreamId) {
        let Some(op) = self.streams.get_mut(&id).and_then(|stream| stream.queue.front_mut()) else { return };
        let command = op.command.clone();
        let (left, indegrees) = match &command {
            Command::Work(_) | Command::Host | Command::MemOp(_) => (1, Vec::new()),
            Command::Graph(graph) => (graph.nodes().len(), graph.indegrees().to_vec()),
            Command::Record { .. } | Command::Wait { .. } => (0, Vec::new()),
        };
        let roots: Vec<usize> = (0..indegrees.len()).filter(|node| indegrees[*node] == 0).collect();
        op.progress = Progress::Begun { left, indegrees };
        match command {
            Command::Work(work) => self.begin_work(id, 0, work),
            Command::Graph(graph) => {
                for node in roots {
                    self.begin_work(id, node, graph.nodes()[node].work);
                }
            }
            Command::Record { tag } => self.records.push(Record { stream: id, tag, at_ns: self.now }),
            Command::MemOp(_) => self.mem_op(id),
            Command::Wait { .. } | Command::Host => {}
        }
        self.complete_if_done(id);
    }

    fn begin_work(&mut self, id: StreamId, node: usize, work: Work) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (group, priority, ns) = (stream.group, stream.priority, work.ns());
        let task = Task { stream: id, node, ns, sms: params::SMS, name: None, priority, hold: None };
        match work {
            Work::Kernel { sms, name, .. } => {
                let sms = sms.clamp(1, params::SMS);
                self.push(group, Task { sms, name: Some(name), ..task });
            }
            Work::Hold { address, value, timeout_ns, name, times } => {
                let until =
                    Condition { address, value: value.into(), compare: Compare::AtLeast, is_wide: false };
                let ns = timeout_ns.max(params::MIN_KERNEL_NS);
                let hold = Some(Hold { until, times, is_released: false });
                self.push(group, Task { ns, sms: 1, name: Some(name), hold, ..task });
            }
            Work::Fill { .. } => self.push(group, task),
            Work::Copy { engine, .. } => {
                self.copies.push(engine, Copy { group, stream: id, node, ns }, self.now)
            }
            Work::Empty => self.node_done(id, node),
        }
    }

    fn push(&mut self, group: GroupId, task: Task) {
        if let Some(group) = self.runlist.groups.get_mut(&group) {
            group.push(task);
        }
    }

    /// Polling kernels have begun: the words that they wait for may already be set.
    pub(super) fn holds_began(&mut self, holds: &[Task]) {
        for (task, hold) in holds.iter().filter_map(|task| Some((task, task.hold?))) {
            self.records.push(Record { stream: task.stream, tag: hold.times[0], at_ns: self.now });
            let owner = self.streams.get(&task.stream).and_then(|stream| self.owner(stream.group));
            if let Some(owner) = owner {
                let address = hold.until.address;
                self.runlist.set_word(owner, address, self.words.value(owner, address));
            }
        }
    }

    pub(super) fn task_done(&mut self, task: Task) {
        if let Some(hold) = task.hold.filter(|hold| hold.is_released) {
            self.records.push(Record { stream: task.stream, tag: hold.times[1], at_ns: self.now });
        }
        let owner = self.streams.get(&task.stream).and_then(|stream| self.owner(stream.group));
        if let (Some(owner), Some(name)) = (owner, task.name) {
            self.account.completed(owner, name, task.ns, self.now);
        }
        self.work_done(task.stream, task.node);
    }

    pub(super) fn copy_done(&mut self, copy: Copy) {
        if let Some(owner) = self.owner(copy.group) {
            self.account.copied(owner, copy.ns);
        }
        self.work_done(copy.stream, copy.node);
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
        let mut free = Vec::new();
        for &successor in &graph.nodes()[node].successors {
            indegrees[successor] -= 1;
            if indegrees[successor] == 0 {
                free.push(successor);
            }
        }
        for successor in free {
            self.begin_work(id, successor, graph.nodes()[successor].work);
        }
    }

    /// Takes the first command out if all of it is done.
    pub(super) fn complete_if_done(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let done = |op: &mut Op| matches!(op.progress, Progress::Begun { left: 0, .. });
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
}
