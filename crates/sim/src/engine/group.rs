//! A context's channel group: its work, its time slice, and whether it may run.

use super::collective::Arrival;
use super::hold::Hold;
use super::{CollectiveRank, OwnerId, StreamId, StreamKind};
use crate::params;
use std::collections::{BTreeSet, VecDeque};

/// A piece of work for the multiprocessors, and its context.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) stream: StreamId,
    pub(super) node: usize,
    pub(super) ns: u64,
    pub(super) sms: u32,
    /// Index of the kernel's name; `None` for a memset.
    pub(super) name: Option<usize>,
    pub(super) priority: i32,
    /// The wait of a hold kernel.
    pub(super) hold: Option<Hold>,
    /// The place of a collective kernel.
    pub(super) collective: Option<CollectiveRank>,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) task: Task,
    pub(super) left_ns: u64,
    pub(super) ran_ns: u64,
    /// A collective kernel waits for the other ranks: it has the GPU, and `left_ns` is as long as before.
    pub(super) is_spinning: bool,
    /// Parts that a collective kernel has not begun; `left_ns` is of the part before them.
    pub(super) further_parts: u32,
    /// The time at which a hold kernel ends without the word, also while its group is saved.
    pub(super) deadline: Option<u64>,
}

impl Task {
    /// Time of a part of a collective kernel; of another one, its whole time.
    fn part_ns(&self) -> u64 {
        let parts = self.collective.map_or(1, |rank| rank.parts.max(1));
        (self.ns / u64::from(parts)).max(1)
    }
}

impl Running {
    /// Begins the next part of a collective kernel that has ended one: it arrives again. `None` if it has no further part.
    pub(super) fn next_part(&mut self) -> Option<Arrival> {
        self.further_parts = self.further_parts.checked_sub(1)?;
        (self.left_ns, self.is_spinning) = (self.task.part_ns(), true);
        self.arrival()
    }

    /// The arrival of a collective kernel.
    pub(super) fn arrival(&self) -> Option<Arrival> {
        let Task { stream, node, collective, .. } = self.task;
        collective.map(|rank| Arrival { stream, node, rank })
    }
}

/// Whether a group may use the multiprocessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The group runs in its time slices.
    Enabled,
    /// Running kernels may end; no other begins.
    Draining,
    /// No kernel of the group runs; its running kernels are saved.
    Stopped,
}

/// How often the state of a group was saved and restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switches {
    /// Saves.
    pub saves: u32,
    /// Restores.
    pub restores: u32,
    /// Saves while the group had no work.
    pub idle_saves: u32,
    /// Saves in the middle of a kernel.
    pub mid_kernel_saves: u32,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) owner: OwnerId,
    pub(super) timeslice_ns: u64,
    pub(super) access: Access,
    /// Tasks that begin when there is room, in this order.
    pub(super) ready: VecDeque<Task>,
    pub(super) running: Vec<Running>,
    /// Streams whose next command is suspended because the group may not run.
    pub(super) suspended: Vec<StreamId>,
    /// The time since which only hold kernels run, with nothing pending behind them.
    pub(super) alone_since: Option<u64>,
    /// Whether it was saved with unfinished kernels, which have to be restarted.
    pub(super) is_stalled: bool,
    pub(super) switches: Switches,
    /// Its streams, by `StreamKind as usize`.
    pub(super) by_kind: [BTreeSet<StreamId>; StreamKind::ALL.len()],
}

impl Group {
    pub(super) fn new(owner: OwnerId, timeslice_ns: u64) -> Self {
        Self {
            owner,
            timeslice_ns,
            access: Access::Enabled,
            ready: VecDeque::new(),
            running: Vec::new(),
            suspended: Vec::new(),
            alone_since: None,
            is_stalled: false,
            switches: Switches::default(),
            by_kind: Default::default(),
        }
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = &StreamId> {
        self.by_kind.iter().flatten()
    }

    /// Whether it has work that may run.
    pub(super) fn is_runnable(&self) -> bool {
        match self.access {
            Access::Enabled => !self.ready.is_empty() || !self.running.is_empty(),
            Access::Draining => !self.running.is_empty(),
            Access::Stopped => false,
        }
    }

    /// Appends a task to those of its priority.
    pub(super) fn push(&mut self, task: Task) {
        let index = self.ready.partition_point(|other| other.priority <= task.priority);
        self.ready.insert(index, task);
    }

    /// Starts ready tasks while there is room. Returns the number of tasks that were running before.
    pub(super) fn dispatch(&mut self, now: u64) -> usize {
        if self.access != Access::Enabled {
            return self.running.len();
        }
        let mut used: u32 = self.running.iter().map(|running| running.task.sms).sum();
        let before = self.running.len();
        while let Some(task) = self.ready.front() {
            if used + task.sms > params::SMS {
                break;
            }
            used += task.sms;
            let mut task = *task;
            let deadline = task.hold.as_mut().map(|hold| hold.begin(now));
            let left_ns = deadline.map_or(task.part_ns(), |deadline| deadline - now);
            let is_spinning = task.collective.is_some();
            let further_parts = task.collective.map_or(0, |rank| rank.parts.saturating_sub(1));
            self.running.push(Running { task, left_ns, ran_ns: 0, is_spinning, further_parts, deadline });
            self.ready.pop_front();
        }
        before
    }

    /// Whether only hold kernels run, and nothing is ready.
    pub(super) fn runs_only_holds(&self) -> bool {
        self.ready.is_empty()
            && !self.running.is_empty()
            && self.running.iter().all(|running| running.task.hold.is_some())
    }

    /// Continues its kernels at `now`.
    pub(super) fn resume(&mut self, now: u64) {
        self.is_stalled = false;
        self.switches.restores += 1;
        for running in &mut self.running {
            if let Some(deadline) = running.deadline {
                running.left_ns = running.left_ns.min(deadline.saturating_sub(now).max(1));
            }
        }
    }

    /// Counts a save of its state.
    pub(super) fn save(&mut self) {
        self.switches.saves += 1;
        self.is_stalled = !self.running.is_empty() || !self.ready.is_empty();
        let kind =
            if self.is_stalled { &mut self.switches.mid_kernel_saves } else { &mut self.switches.idle_saves };
        *kind += 1;
    }
}
