//! Selection of the next operation to submit.

use std::sync::Arc;

use super::{Entry, Operation, QueueTable};
use crate::ids::QueueId;
use crate::in_flight::Reservation;
use crate::queue::Queue;
use crate::stream_state::StreamState;

/// An operation to be submitted. Its queue counts as submitting until `QueueTable::entry_submitted`.
#[derive(Debug)]
pub(crate) struct SelectedEntry {
    pub(crate) queue: Arc<Queue>,
    pub(crate) entry: Entry,
    pub(crate) gate: Option<u32>,
}

/// What the worker has to do next.
#[derive(Debug)]
pub(crate) enum Selection {
    /// Submit this entry.
    Submit(Box<SelectedEntry>),
    /// Open gates of a preempted queue as far as needed, then select again: a running queue needs more of its work.
    Release,
    /// Nothing now. `full` is not empty if only bounds prevent a submission.
    Nothing {
        /// Queues that wait for room in their in-flight window. The driver uses them until `Engine::end_driver_use`.
        full: Vec<Arc<Queue>>,
    },
}

enum HeadStatus {
    Ready { released: bool },
    Blocked(Vec<(QueueId, u64)>),
    NotReady,
}

impl QueueTable {
    /// Takes the next operation that may go; queues are served round-robin.
    pub(crate) fn select_next(&mut self) -> Selection {
        let mut full = Vec::new();
        let mut order: Vec<QueueId> = self.queue_states.keys().copied().collect();
        if let Some(next) = order.iter().position(|id| Some(*id) > self.last_served) {
            order.rotate_left(next);
        }
        for id in order {
            match self.head_status(id) {
                HeadStatus::NotReady => {}
                HeadStatus::Ready { released } => match self.dequeue(id, released) {
                    Some(task) => {
                        self.last_served = Some(id);
                        return Selection::Submit(Box::new(task));
                    }
                    None => full.push(id),
                },
                // Each release lets a queue go further than before, so the repeated selection ends.
                HeadStatus::Blocked(on) => {
                    for (leader, position) in on {
                        if self.release_below(leader, position) {
                            return Selection::Release;
                        }
                    }
                }
            }
        }
        let begin_use = |id| self.begin_driver_use(id).map(|queue_state| Arc::clone(&queue_state.queue));
        Selection::Nothing { full: full.into_iter().filter_map(begin_use).collect() }
    }

    fn head_status(&self, id: QueueId) -> HeadStatus {
        let Some(queue_state) = self.queue_states.get(&id) else { return HeadStatus::NotReady };
        let Some(entry) = queue_state.pending.front() else { return HeadStatus::NotReady };
        // An event does not tell its context.
        let is_unusable = match entry.operation {
            Operation::Wait(_) => self.ending_contexts.is_any_quiesced(),
            _ => self.ending_contexts.is_quiesced(queue_state.stream().context),
        };
        if is_unusable {
            return HeadStatus::NotReady;
        }
        if queue_state.submitting
            || queue_state.capture.possible
            || !queue_state.may_submit(queue_state.submitted)
        {
            return HeadStatus::NotReady;
        }
        let is_open = |&&(leader, position): &&(QueueId, u64)| !self.has_submitted(leader, position);
        let on: Vec<_> = entry.after.iter().filter(is_open).copied().collect();
        if on.is_empty() {
            HeadStatus::Ready { released: queue_state.state != StreamState::Running }
        } else {
            HeadStatus::Blocked(on)
        }
    }

    fn dequeue(&mut self, id: QueueId, released: bool) -> Option<SelectedEntry> {
        let queue_state = self.queue_states.get_mut(&id)?;
        // The gates of a preempted stream may be closed: a new gate would delay work that another queue waits for.
        let gate = match queue_state
            .queue
            .in_flight
            .reserve(queue_state.pending.front()?.operation.work(), !released)
        {
            Reservation::Granted(gate) => gate,
            Reservation::Full => return None,
        };
        let entry = queue_state.pop()?;
        queue_state.submitting = true;
        match entry.operation {
            Operation::ByCaller => queue_state.admitted_caller = Some(queue_state.submitted),
            Operation::Wait(_) => self.ending_contexts.event_uses += 1,
            _ => {}
        }
        Some(SelectedEntry { queue: Arc::clone(&queue_state.queue), entry, gate })
    }

    /// A running queue needs what the preempted queue `leader` has before `position`. Returns `true` if that is new.
    fn release_below(&mut self, leader: QueueId, position: u64) -> bool {
        let Some(queue_state) = self.queue_states.get_mut(&leader) else { return false };
        if queue_state.state == StreamState::Running || queue_state.released_below >= position {
            return false;
        }
        queue_state.released_below = position;
        true
    }

    /// The driver has the operation.
    pub(crate) fn entry_submitted(&mut self, id: QueueId) {
        if let Some(queue_state) = self.queue_states.get_mut(&id) {
            queue_state.submitting = false;
            queue_state.admitted_caller = None;
            queue_state.submitted += 1;
        }
        self.update_admission(id);
    }
}
