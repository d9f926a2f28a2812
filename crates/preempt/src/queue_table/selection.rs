//! Whose turn it is.

use std::sync::Arc;

use super::{Book, Entry, What};
use crate::flight::Admit;
use crate::ids::QueueId;
use crate::queue::Queue;
use crate::state::State;

/// A command to be submitted. Its queue is busy until `Book::done`.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) queue: Arc<Queue>,
    pub(crate) entry: Entry,
    pub(crate) gate: Option<u32>,
}

/// What the worker has to do.
#[derive(Debug)]
pub(crate) enum Picked {
    /// Submit this.
    Task(Box<Task>),
    /// Let what a preempted queue has in the driver go on, and ask again: more of it is needed behind that.
    Release,
    /// Nothing now; `full` if only bounds are in the way.
    Nothing {
        /// These queues wait for the GPU to take more. They are looked at until `Engine::looked`.
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
        for id in order {
            match self.head(id) {
                Head::Stay => {}
                Head::Go(released) => match self.take(id, released) {
                    Some(task) => {
                        self.cursor = Some(id);
                        return Picked::Task(Box::new(task));
                    }
                    None => full.push(id),
                },
                // Each release lets a queue go further than before, so asking again ends.
                Head::Blocked(on) => {
                    for (leader, position) in on {
                        if self.release(leader, position) {
                            return Picked::Release;
                        }
                    }
                }
            }
        }
        let look = |id| self.look(id).map(|lane| Arc::clone(&lane.queue));
        Picked::Nothing { full: full.into_iter().filter_map(look).collect() }
    }

    fn head(&self, id: QueueId) -> Head {
        let Some(lane) = self.lanes.get(&id) else { return Head::Stay };
        let Some(entry) = lane.waiting.front() else { return Head::Stay };
        // An event does not say whose it is.
        let is_unusable = match entry.what {
            What::Wait(_) => self.endings.is_any_still(),
            _ => self.endings.is_still(lane.queue.stream().context),
        };
        if is_unusable {
            return Head::Stay;
        }
        if lane.busy || lane.capture.possible || !lane.may_go(lane.submitted) {
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
        match entry.what {
            What::Turn => lane.turn = Some(lane.submitted),
            What::Wait(_) => self.endings.event_uses += 1,
            _ => {}
        }
        Some(Task { queue: Arc::clone(&lane.queue), entry, gate })
    }

    /// A running queue needs what the preempted queue `leader` has before `position`; whether that is new.
    fn release(&mut self, leader: QueueId, position: u64) -> bool {
        let Some(lane) = self.lanes.get_mut(&leader) else { return false };
        if lane.state == State::Running || lane.released >= position {
            return false;
        }
        lane.released = position;
        true
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
