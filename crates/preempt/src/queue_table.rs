//! The table of all queues, and the state behind its lock: pending commands, what they wait for, and which one may go
//! next. Makes no driver calls.

mod ending_contexts;
mod queue_state;
mod selection;
mod waiters;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ids::{Context, Event, QueueId, Stream};
use crate::outcome::Error;
use crate::queue::Queue;
use crate::stream_state::StreamState;

pub(crate) use ending_contexts::EndingContexts;
pub(crate) use queue_state::{Entry, GroupControl, IdleWatch, Operation, QueueState};
pub(crate) use selection::{SelectedEntry, Selection};
pub(crate) use waiters::Waiters;

/// Pending commands that use an executable graph.
#[derive(Debug, Default)]
struct GraphUse {
    pending_commands: usize,
    destroy_requested: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct QueueTable {
    queue_states: BTreeMap<QueueId, QueueState>,
    streams: HashMap<(Context, u64), QueueId>,
    graphs: HashMap<u64, GraphUse>,
    created: u64,
    /// Threads that wait for a change.
    pub(crate) waiters: Waiters,
    /// Contexts that are being ended.
    pub(crate) ending_contexts: EndingContexts,
    /// Threads in calls for which the driver waits until all work of a context is done, for example to load a module.
    pub(crate) module_loads: BTreeMap<Context, u32>,
    /// Unused events and their contexts, to be destroyed when no context is ending.
    pub(crate) postponed_destroys: Vec<(Event, Option<Context>)>,
    /// The queue that the worker served last; the search for the next command begins behind it.
    last_served: Option<QueueId>,
}

impl QueueTable {
    /// The queue of a stream, created if it does not exist.
    pub(crate) fn queue(&mut self, stream: Stream) -> Arc<Queue> {
        if let Some(queue_state) =
            self.streams.get(&(stream.context, stream.handle)).and_then(|id| self.queue_states.get(id))
        {
            return Arc::clone(&queue_state.queue);
        }
        self.created += 1;
        let id = QueueId(self.created);
        let queue = Queue::new(id, stream);
        let gated = self.in_context(stream.context).any(|queue_state| queue_state.queue.is_gated());
        queue.set_unrestricted(!(gated && stream.is_legacy()));
        self.streams.insert((stream.context, stream.handle), id);
        self.queue_states.insert(id, QueueState::new(Arc::clone(&queue)));
        self.update_admission(id);
        queue
    }

    pub(crate) fn queue_state(&self, id: QueueId) -> Option<&QueueState> {
        self.queue_states.get(&id)
    }

    pub(crate) fn queue_state_mut(&mut self, id: QueueId) -> Option<&mut QueueState> {
        self.queue_states.get_mut(&id)
    }

    /// Counts a thread that is about to use the stream in the driver without the table's lock. `None` if the stream
    /// or its context is being destroyed. The use ends with `Engine::end_driver_use`.
    pub(crate) fn begin_driver_use(&mut self, id: QueueId) -> Option<&mut QueueState> {
        let queue_state = self.queue_states.get_mut(&id).filter(|queue_state| !queue_state.is_finished())?;
        if self.ending_contexts.is_quiesced(queue_state.stream().context) {
            return None;
        }
        queue_state.driver_uses += 1;
        Some(queue_state)
    }

    /// The queue's state if no `preempt` or `restore` call has begun since the one that returned `epoch`.
    pub(crate) fn in_epoch(&mut self, id: QueueId, epoch: u64) -> Result<&mut QueueState, Error> {
        let queue_state = self.queue_states.get_mut(&id).filter(|queue_state| queue_state.epoch == epoch);
        queue_state.ok_or(Error::InvalidState)
    }

    pub(crate) fn queue_states(&self) -> impl Iterator<Item = &QueueState> {
        self.queue_states.values()
    }

    pub(crate) fn queue_states_mut(&mut self) -> impl Iterator<Item = &mut QueueState> {
        self.queue_states.values_mut()
    }

    /// The queues for whose states `selects` returns `true`.
    pub(crate) fn queues(&self, selects: impl Fn(&QueueState) -> bool) -> Vec<Arc<Queue>> {
        let selected = self.queue_states().filter(|queue_state| selects(queue_state));
        selected.map(|queue_state| Arc::clone(&queue_state.queue)).collect()
    }

    /// The queues of a context.
    pub(crate) fn in_context(&self, context: Context) -> impl Iterator<Item = &QueueState> {
        self.queue_states().filter(move |queue_state| queue_state.stream().context == context)
    }

    /// Queues whose earlier commands the driver completes before commands of `stream`: for the legacy default stream
    /// all blocking streams, for a blocking stream the legacy one.
    fn ordered_with(&self, stream: Stream) -> impl Iterator<Item = &QueueState> {
        self.queue_states().filter(move |queue_state| queue_state.stream().is_ordered_with(stream))
    }

    /// Whether the queue's gates are open although it is preempted, because a thread makes a call that waits for all
    /// work of the context.
    pub(crate) fn is_yielding(&self, id: QueueId) -> bool {
        self.queue_states.get(&id).is_some_and(|queue_state| {
            queue_state.state.is_under_preemption()
                && self.module_loads.contains_key(&queue_state.stream().context)
        })
    }

    /// Whether running streams wait on the GPU for everything that this stream waits for.
    pub(crate) fn blocks_running_streams(&self, stream: Stream) -> bool {
        stream.is_legacy()
            && self.ordered_with(stream).any(|queue_state| queue_state.state == StreamState::Running)
    }

    /// Queues to which nothing may be submitted while this stream is captured: the driver would end the capture.
    pub(crate) fn excluded_by_capture(&self, stream: Stream) -> impl Iterator<Item = QueueId> {
        let tied = self.ordered_with(stream).filter(move |_| !stream.is_legacy());
        tied.map(QueueState::id)
    }

    /// Whether a stream has a queue.
    pub(crate) fn contains(&self, stream: Stream) -> bool {
        self.streams.contains_key(&(stream.context, stream.handle))
    }

    /// Whether the stream's handle still refers to this queue.
    pub(crate) fn maps_handle_to(&self, queue: &Queue) -> bool {
        let stream = queue.stream();
        self.streams.get(&(stream.context, stream.handle)) == Some(&queue.id())
    }

    /// Positions in other queues that a command accepted now has to follow.
    pub(crate) fn dependencies(&self, stream: Stream) -> Vec<(QueueId, u64)> {
        let waiting = self.ordered_with(stream).filter(|queue_state| !queue_state.is_drained());
        waiting.map(|queue_state| (queue_state.id(), queue_state.accepted)).collect()
    }

    /// Whether commands of this queue may go to the driver without being queued.
    pub(crate) fn admits_directly(&self, id: QueueId) -> bool {
        let Some(queue_state) = self.queue_states.get(&id) else { return false };
        queue_state.state == StreamState::Running
            && !queue_state.closing
            && queue_state.deferred_error.is_none()
            && queue_state.is_drained()
            && self.ordered_with(queue_state.stream()).all(QueueState::is_drained)
    }

    /// Whether the driver has everything that the queue accepted before `position`; also true if the queue is gone.
    pub(crate) fn has_submitted(&self, id: QueueId, position: u64) -> bool {
        self.queue_states.get(&id).is_none_or(|queue_state| queue_state.submitted >= position)
    }

    /// Opens or closes admission to a queue and to those that are ordered with it.
    pub(crate) fn update_admission(&self, id: QueueId) {
        let Some(queue_state) = self.queue_states.get(&id) else { return };
        for queue_state in self.ordered_with(queue_state.stream()).chain([queue_state]) {
            if self.admits_directly(queue_state.id()) {
                queue_state.queue.admission.open();
            } else {
                queue_state.queue.admission.close();
            }
        }
    }

    /// Appends an operation to its queue.
    pub(crate) fn push(&mut self, id: QueueId, operation: Operation, mut after: Vec<(QueueId, u64)>) {
        let Some(stream) = self.queue_states.get(&id).map(QueueState::stream) else { return };
        after.extend(self.dependencies(stream));
        if let Some(graph) = operation.graph() {
            self.graphs.entry(graph).or_default().pending_commands += 1;
        }
        if let Some(queue_state) = self.queue_states.get_mut(&id) {
            queue_state.push(Entry { operation, after });
        }
        self.update_admission(id);
    }

    /// Notes that a pending command that uses a graph was submitted. Returns the graph if it is to be destroyed now.
    pub(crate) fn graph_used(&mut self, graph: u64) -> Option<u64> {
        let graph_use = self.graphs.get_mut(&graph)?;
        graph_use.pending_commands = graph_use.pending_commands.saturating_sub(1);
        let (finished, destroy) = (graph_use.pending_commands == 0, graph_use.destroy_requested);
        if finished {
            self.graphs.remove(&graph);
        }
        (finished && destroy).then_some(graph)
    }

    /// Whether commands that use a graph are pending.
    pub(crate) fn is_graph_waiting(&self, graph: u64) -> bool {
        self.graphs.contains_key(&graph)
    }

    /// Notes that the program destroys a graph. Returns `true` if pending commands postpone that.
    pub(crate) fn request_graph_destroy(&mut self, graph: u64) -> bool {
        self.graphs.get_mut(&graph).map(|graph_use| graph_use.destroy_requested = true).is_some()
    }

    /// Whether a thread waits for the command that a queue has just submitted.
    pub(crate) fn is_awaited(&self, id: QueueId) -> bool {
        self.waiters.is_satisfied(id, self.queue_states.get(&id).map(|queue_state| queue_state.submitted))
    }

    /// The queue's handle no longer refers to it: the driver may give the handle to another stream.
    pub(crate) fn unmap_handle(&mut self, id: QueueId) {
        self.streams.retain(|_, named| *named != id);
    }

    /// Removes a queue.
    pub(crate) fn remove(&mut self, id: QueueId) -> Option<QueueState> {
        self.unmap_handle(id);
        let queue_state = self.queue_states.remove(&id)?;
        queue_state.queue.admission.close();
        for other in self.queue_states() {
            other.queue.in_flight.with_gate_sequence(|sequence| sequence.remove_needs_of(id));
        }
        for follower in self.ordered_with(queue_state.stream()) {
            self.update_admission(follower.id());
        }
        Some(queue_state)
    }
}
