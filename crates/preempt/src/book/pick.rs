//! Whose turn it is.

use std::sync::Arc;

use super::{Book, Entry, What};
use crate::config::OnBlocked;
use crate::flight::Admit;
use crate::ids::QueueId;
use crate::outcome::Notice;
use crate::queue::Queue;
use crate::state::State;

/// A command to be submitted. Its queue is busy until `Book::done`.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) queue: Arc<Queue>,
    pub(crate) entry: Entry,
    pub(crate) gate: Option<u32>,
    /// The queue is preempted; somebody else needs this command.
    pub(crate) released: bool,
}

/// What the worker has to do.
#[derive(Debug)]
pub(crate) enum Picked {
    /// Submit this.
    Task(Box<Task>),
    /// Tell this, and ask again.
    Notice(Notice),
    /// Nothing now; `full` if only bounds are in the way.
    Nothing {
        /// These queues wait for the GPU to take more.
        full: Vec<Arc<Queue>>,
    },
}

enum Head {
    Go(bool),
    Blocked(Vec<(QueueId, u64)>),
    Stay,
}

impl Book {
    /// Takes the next command that may go, queue by queue in turn.
    pub(crate) fn pick(&mut self) -> Picked {
        let mut full = Vec::new();
        let mut order: Vec<QueueId> = self.lanes.keys().copied().collect();
        if let Some(next) = order.iter().position(|id| Some(*id) > self.cursor) {
            order.rotate_left(next);
        }
        // Each release lets at least one more queue go, so this ends.
        loop {
            let mut again = false;
            for &id in &order {
                match self.head(id) {
                    Head::Stay => {}
                    Head::Go(released) => match self.take(id, released) {
                        Some(task) => {
                            self.cursor = Some(id);
                            return Picked::Task(Box::new(task));
                        }
                        None => full.extend(self.lanes.get(&id).map(|lane| Arc::clone(&lane.queue))),
                    },
                    Head::Blocked(on) => {
                        for (leader, position) in on {
                            match self.release(id, leader, position) {
                                Release::Done => again = true,
                                Release::Told => {}
                                Release::Tell(notice) => return Picked::Notice(notice),
                            }
                        }
                    }
                }
            }
            if !again {
                return Picked::Nothing { full };
            }
            full.clear();
        }
    }

    fn head(&self, id: QueueId) -> Head {
        let Some(lane) = self.lanes.get(&id) else { return Head::Stay };
        let Some(entry) = lane.waiting.front() else { return Head::Stay };
        if lane.busy || lane.capturing || !lane.may_go(lane.submitted) {
            return Head::Stay;
        }
        let is_open = |&&(leader, position): &&(QueueId, u64)| {
            self.lanes.get(&leader).is_some_and(|lane| lane.submitted < position)
        };
        let on: Vec<_> = entry.after.iter().filter(is_open).copied().collect();
        if on.is_empty() { Head::Go(lane.state != State::Running) } else { Head::Blocked(on) }
    }

    fn take(&mut self, id: QueueId, released: bool) -> Option<Task> {
        let lane = self.lanes.get_mut(&id)?;
        // The gates of a preempted stream may be shut: a new one would hold up what somebody else waits for.
        let gate = match lane.queue.flight.admit(lane.waiting.front()?.what.work(), !released) {
            Admit::Go(gate) => gate,
            Admit::Full => return None,
        };
        let entry = lane.pop()?;
        lane.busy = true;
        if matches!(entry.what, What::Turn) {
            lane.turn = Some(lane.submitted);
        }
        Some(Task { queue: Arc::clone(&lane.queue), entry, gate, released })
    }

    /// `waiting` runs and needs what `leader` has before `position`.
    fn release(&mut self, waiting: QueueId, leader: QueueId, position: u64) -> Release {
        let Some(lane) = self.lanes.get_mut(&leader) else { return Release::Told };
        if lane.state == State::Running || lane.released >= position {
            return Release::Told;
        }
        if lane.config.is_some_and(|config| config.on_blocked == OnBlocked::Report) {
            if lane.reported >= position {
                return Release::Told;
            }
            lane.reported = position;
            return Release::Tell(Notice::Blocked(waiting, leader));
        }
        lane.released = position;
        Release::Done
    }

    /// A command is with the driver.
    pub(crate) fn done(&mut self, id: QueueId) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.busy = false;
            lane.turn = None;
            lane.submitted += 1;
        }
        self.settle(id);
    }
}

enum Release {
    Done,
    Told,
    Tell(Notice),
}
