//! The runlist: which context has the multiprocessors, for how long, and what changing it costs.
//!
//! Contexts take turns, a time slice each, as long as more than one has kernels. A context without kernels is passed
//! over at once. A context that is taken off keeps its kernels where they are and goes on with them later.

use super::{GroupId, OwnerId, StreamId, StreamKind};
use crate::params;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A piece of work for the multiprocessors, and whose it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) stream: StreamId,
    pub(super) node: usize,
    pub(super) ns: u64,
    pub(super) sms: u32,
    /// Index of the kernel's name; none for a memset.
    pub(super) name: Option<usize>,
    pub(super) priority: i32,
}

/// A task that has begun.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) task: Task,
    pub(super) left_ns: u64,
}

/// A context's channel group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) owner: OwnerId,
    pub(super) timeslice_ns: u64,
    /// Begin when there is room, in this order.
    pub(super) ready: VecDeque<Task>,
    pub(super) running: Vec<Running>,
    /// It was taken off at the end of a slice, and has work left: putting it back costs more.
    taken_off: bool,
    /// The legacy default stream, if it was made.
    pub(super) legacy: BTreeSet<StreamId>,
    /// The streams that synchronise with the legacy default stream.
    pub(super) blocking: BTreeSet<StreamId>,
    non_blocking: BTreeSet<StreamId>,
}

impl Group {
    pub(super) fn new(owner: OwnerId, timeslice_ns: u64) -> Self {
        Self {
            owner,
            timeslice_ns,
            ready: VecDeque::new(),
            running: Vec::new(),
            taken_off: false,
            legacy: BTreeSet::new(),
            blocking: BTreeSet::new(),
            non_blocking: BTreeSet::new(),
        }
    }

    /// The streams of one kind.
    pub(super) fn of_kind(&mut self, kind: StreamKind) -> &mut BTreeSet<StreamId> {
        match kind {
            StreamKind::Legacy => &mut self.legacy,
            StreamKind::Blocking => &mut self.blocking,
            StreamKind::NonBlocking => &mut self.non_blocking,
        }
    }

    fn is_runnable(&self) -> bool {
        !self.ready.is_empty() || !self.running.is_empty()
    }

    /// Lets ready tasks begin while there is room. True if one began.
    fn dispatch(&mut self) -> bool {
        let mut used: u32 = self.running.iter().map(|running| running.task.sms).sum();
        let before = self.running.len();
        while let Some(task) = self.ready.front() {
            if used + task.sms > params::SMS {
                break;
            }
            used += task.sms;
            self.running.push(Running { task: *task, left_ns: task.ns });
            self.ready.pop_front();
        }
        self.running.len() > before
    }
}

/// Who has the multiprocessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    /// Nobody wants them.
    Idle,
    /// A context runs; its slice began at `slice_start`, and ends at `ends` if somebody else waits.
    Running { group: GroupId, slice_start: u64, ends: Option<u64> },
    /// Nobody runs until `until`, then `to` does.
    Switching { to: GroupId, until: u64 },
}

/// All contexts, and which of them is on.
#[derive(Debug)]
pub(super) struct Runlist {
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) front: Front,
    /// Whose state is on the GPU.
    resident: Option<GroupId>,
}

/// What became of the runlist in one look at it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Tasks of this owner began.
    pub(super) began: Option<OwnerId>,
    /// A switch began.
    pub(super) switched: bool,
}

impl Runlist {
    pub(super) fn new() -> Self {
        Self { groups: BTreeMap::new(), front: Front::Idle, resident: None }
    }

    /// When the front changes by itself next.
    pub(super) fn next_event(&self, now: u64) -> Option<u64> {
        match self.front {
            Front::Idle => None,
            Front::Switching { until, .. } => Some(until),
            Front::Running { group, ends, .. } => {
                let shortest = self.groups[&group].running.iter().map(|running| now + running.left_ns).min();
                shortest.into_iter().chain(ends).min()
            }
        }
    }

    /// Time passes. Returns the owner who ran, or none.
    pub(super) fn elapse(&mut self, ns: u64) -> Option<OwnerId> {
        let Front::Running { group, .. } = self.front else { return None };
        let group = self.groups.get_mut(&group)?;
        group.running.iter_mut().for_each(|running| running.left_ns -= ns);
        Some(group.owner)
    }

    /// Takes out the tasks that are done.
    pub(super) fn finished(&mut self) -> Vec<Task> {
        let Front::Running { group, .. } = self.front else { return Vec::new() };
        let Some(group) = self.groups.get_mut(&group) else { return Vec::new() };
        group.running.extract_if(.., |running| running.left_ns == 0).map(|running| running.task).collect()
    }

    /// Puts a task into its group's queue, behind those of its priority.
    pub(super) fn push(&mut self, group: GroupId, task: Task) {
        let Some(group) = self.groups.get_mut(&group) else { return };
        let place = group.ready.partition_point(|other| other.priority <= task.priority);
        group.ready.insert(place, task);
    }

    /// Takes a group off, whatever it is doing.
    pub(super) fn remove(&mut self, id: GroupId) {
        self.groups.remove(&id);
        if self.resident == Some(id) {
            self.resident = None;
        }
        match self.front {
            Front::Running { group, .. } if group == id => self.front = Front::Idle,
            _ => {}
        }
    }

    /// Sets a group's slice; it holds from the slice that is running.
    pub(super) fn set_timeslice(&mut self, id: GroupId, ns: u64) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.timeslice_ns = ns.max(1);
        }
        if let Front::Running { group, ends, .. } = &mut self.front
            && *group == id
        {
            *ends = None;
        }
    }

    /// The next runnable group after this one, in turn; itself last.
    fn next_after(&self, id: Option<GroupId>) -> Option<GroupId> {
        let runnable = |(id, group): (&GroupId, &Group)| group.is_runnable().then_some(*id);
        let Some(id) = id else { return self.groups.iter().find_map(runnable) };
        let later = self.groups.range(id..).skip_while(|(other, _)| **other == id);
        later.chain(self.groups.range(..=id)).find_map(runnable)
    }

    /// Makes the front what it must be at `now`: called after anything has changed.
    pub(super) fn settle(&mut self, now: u64) -> Changes {
        let mut changes = Changes::default();
        loop {
            match self.front {
                Front::Switching { to, until } if until <= now => {
                    if let Some(group) = self.groups.get_mut(&to).filter(|group| group.is_runnable()) {
                        group.taken_off = false;
                        self.resident = Some(to);
                        self.front = Front::Running { group: to, slice_start: now, ends: None };
                    } else {
                        self.front = Front::Idle;
                    }
                }
                Front::Switching { .. } => return changes,
                Front::Idle => {
                    let stays =
                        self.resident.filter(|id| self.groups.get(id).is_some_and(Group::is_runnable));
                    match stays.or_else(|| self.next_after(self.resident)) {
                        None => return changes,
                        Some(id) if self.resident == Some(id) => {
                            self.front = Front::Running { group: id, slice_start: now, ends: None };
                        }
                        Some(to) => {
                            changes.switched = true;
                            self.front = Front::Switching { to, until: now + params::LOAD_NS };
                        }
                    }
                }
                Front::Running { group: id, slice_start, ends } => {
                    if !self.groups[&id].is_runnable() {
                        self.front = match self.next_after(Some(id)) {
                            None => Front::Idle,
                            Some(to) => {
                                changes.switched = true;
                                Front::Switching { to, until: now + params::LOAD_NS }
                            }
                        };
                        if self.front == Front::Idle {
                            return changes;
                        }
                        continue;
                    }
                    let other = self.next_after(Some(id)).filter(|other| *other != id);
                    let slice = self.groups[&id].timeslice_ns;
                    let ends = other.map(|_| ends.unwrap_or_else(|| boundary(slice_start, slice, now)));
                    if let (Some(to), Some(end)) = (other, ends)
                        && end <= now
                    {
                        let cost =
                            params::PREEMPT_NS + if self.groups[&to].taken_off { params::LOAD_NS } else { 0 };
                        if let Some(group) = self.groups.get_mut(&id) {
                            group.taken_off = true;
                        }
                        changes.switched = true;
                        self.front = Front::Switching { to, until: now + cost };
                        continue;
                    }
                    self.front = Front::Running { group: id, slice_start, ends };
                    if let Some(group) = self.groups.get_mut(&id)
                        && group.dispatch()
                    {
                        changes.began = Some(group.owner);
                    }
                    return changes;
                }
            }
        }
    }

    /// The least time from `now` until this group's kernels can go on: nothing if they run.
    pub(super) fn least_wait(&self, id: GroupId, now: u64) -> u64 {
        match self.front {
            Front::Running { group, .. } if group == id => 0,
            Front::Switching { to, until } if to == id => until - now,
            Front::Switching { until, .. } => until - now + params::LOAD_NS,
            Front::Running { .. } => params::LOAD_NS,
            Front::Idle => 0,
        }
    }
}

/// The first end of a slice after `now`: slices follow each other from `start` while nobody else wants the GPU.
fn boundary(start: u64, slice: u64, now: u64) -> u64 {
    let gone = now - start;
    start + (gone / slice + 1) * slice
}
