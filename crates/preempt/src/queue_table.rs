//! All queues that are not simply passing: what waits, for what, and who may go next. No driver call is created in here.

mod ending_contexts;
mod module_loads;
mod queue_state;
mod selection;
mod waiters;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ids::{Context, Event, QueueId, Stream};
use crate::queue::Queue;
use crate::stream_state::StreamState;

pub(crate) use ending_contexts::EndingContexts;
pub(crate) use module_loads::ModuleLoads;
pub(crate) use queue_state::{Entry, GroupControl, Operation, QueueState};
pub(crate) use selection::{SelectedEntry, Selection};
pub(crate) use waiters::Waiters;

/// Launches of a graph that wait.
#[derive(Debug, Default)]
struct GraphUse {
    pending_launches: usize,
    destroy_requested: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct QueueTable {
    queue_states: BTreeMap<QueueId, QueueState>,
    streams: HashMap<(Context, u64), QueueId>,
    graphs: HashMap<u64, GraphUse>,
    created: u64,
    /// Threads that wait for something to change.
    pub(crate) waiters: Waiters,
    /// Contexts that are ending.
    pub(crate) ending_contexts: EndingContexts,
    /// Contexts in which the driver is about to wait for all that they have been given.
    pub(crate) module_loads: ModuleLoads,
    /// Events that nobody means any more, and their contexts: to be destroyed when no context is ending.
    pub(crate) postponed_destroys: Vec<(Event, Option<Context>)>,
    /// Another client is ready: adaptive bounds hold.
    pub(crate) contended: bool,
    /// Whether the queue that the worker last served was this one, so that the next is another.
    last_served: Option<QueueId>,
}

impl QueueTable {
    /// The queue of a stream, created if need be.
    pub(crate) fn queue(&mut self, stream: Stream) -> Arc<Queue> {
        if let Some(queue_state) =
            self.streams.get(&(stream.context, stream.handle)).and_then(|id| self.queue_states.get(id))
        {
            return Arc::clone(&queue_state.queue);
        }
        self.created += 1;
        let id = QueueId(self.created);
        let queue = Queue::new(id, stream);
        let gated = self.queue_states().any(|(_, queue_state)| {
            queue_state.queue.is_gated() && queue_state.queue.stream().context == stream.context
        });
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

    /// Counts a thread in that is about to use the stream in the driver, without the table; `None` if it may not, as it is being
    /// destroyed, or its context. Its use is over with `Engine::looked`.
    pub(crate) fn begin_driver_use(&mut self, id: QueueId) -> Option<&mut QueueState> {
        let queue_state = self.queue_states.get_mut(&id).filter(|queue_state| !queue_state.is_finished())?;
        if self.ending_contexts.is_quiesced(queue_state.queue.stream().context) {
            return None;
        }
        queue_state.driver_uses += 1;
        Some(queue_state)
    }

    pub(crate) fn queue_states(&self) -> impl Iterator<Item = (QueueId, &QueueState)> {
        self.queue_states.iter().map(|(id, queue_state)| (*id, queue_state))
    }

    pub(crate) fn queue_states_mut(&mut self) -> impl Iterator<Item = (QueueId, &mut QueueState)> {
        self.queue_states.iter_mut().map(|(id, queue_state)| (*id, queue_state))
    }

    /// The queues of a context.
    pub(crate) fn in_context(&self, context: Context) -> impl Iterator<Item = (QueueId, &QueueState)> {
        self.queue_states().filter(move |(_, queue_state)| queue_state.queue.stream().context == context)
    }

    /// Queues that commands of `stream` have to follow, as far as anything waits in them: the legacy default stream follows
    /// all blocking ones, and they follow it.
    fn ordered_with(&self, stream: Stream) -> impl Iterator<Item = (QueueId, &QueueState)> {
        self.queue_states().filter(move |(_, queue_state)| queue_state.queue.stream().is_ordered_with(stream))
    }

    /// Whether the queue is held by its admission alone, as somebody makes a call that waits for all that its context has been given.
    pub(crate) fn is_yielding(&self, id: QueueId) -> bool {
        self.queue_states.get(&id).is_some_and(|queue_state| {
            queue_state.state.is_under_preemption()
                && queue_state.yields_to_loads
                && self.module_loads.is_loading(queue_state.queue.stream().context)
        })
    }

    /// Whether streams that run wait on the GPU for whatever this one waits for.
    pub(crate) fn blocks_running_streams(&self, stream: Stream) -> bool {
        stream.is_legacy()
            && self.ordered_with(stream).any(|(_, queue_state)| queue_state.state == StreamState::Running)
    }

    /// Queues that nothing may be submitted to while this stream is captured: it would tie the two.
    pub(crate) fn excluded_by_capture(&self, stream: Stream) -> impl Iterator<Item = QueueId> {
        let tied = self.ordered_with(stream).filter(move |_| !stream.is_legacy());
        tied.map(|(id, _)| id)
    }

    /// Whether a stream has a queue.
    pub(crate) fn contains(&self, stream: Stream) -> bool {
        self.streams.contains_key(&(stream.context, stream.handle))
    }

    /// Whether the stream's handle means this queue.
    pub(crate) fn maps_handle_to(&self, queue: &Queue) -> bool {
        let stream = queue.stream();
        self.streams.get(&(stream.context, stream.handle)) == Some(&queue.id())
    }

    /// What a command accepted now has to come after, in other queues.
    pub(crate) fn dependencies(&self, stream: Stream) -> Vec<(QueueId, u64)> {
        let waiting = self.ordered_with(stream).filter(|(_, queue_state)| !queue_state.is_drained());
        waiting.map(|(id, queue_state)| (id, queue_state.accepted)).collect()
    }

    /// Whether commands of this queue may pass without being queued.
    pub(crate) fn admits_directly(&self, id: QueueId) -> bool {
        let Some(queue_state) = self.queue_states.get(&id) else { return false };
        queue_state.state == StreamState::Running
            && !queue_state.closing
            && queue_state.deferred_error.is_none()
            && queue_state.is_drained()
            && self.ordered_with(queue_state.queue.stream()).all(|(_, leader)| leader.is_drained())
    }

    /// Opens or shuts the doors of a queue and of those that follow it.
    pub(crate) fn update_admission(&self, id: QueueId) {
        let Some(queue_state) = self.queue_states.get(&id) else { return };
        let followers = self.ordered_with(queue_state.queue.stream()).map(|(follower, _)| follower);
        for id in followers.chain([id]) {
            let Some(queue_state) = self.queue_states.get(&id) else { continue };
            if self.admits_directly(id) {
                queue_state.queue.admission.open();
            } else {
                queue_state.queue.admission.close();
            }
        }
    }

    /// Puts a command at the end of its queue; its position there.
    pub(crate) fn push(
        &mut self,
        id: QueueId,
        operation: Operation,
        mut after: Vec<(QueueId, u64)>,
    ) -> Option<u64> {
        let stream = self.queue_states.get(&id)?.queue.stream();
        after.extend(self.dependencies(stream));
        if let Operation::Command(crate::command::Command::Graph(graph)) = &operation {
            self.graphs.entry(*graph).or_default().pending_launches += 1;
        }
        let queue_state = self.queue_states.get_mut(&id)?;
        let position = queue_state.push(Entry { operation, after });
        self.update_admission(id);
        Some(position)
    }

    /// A graph's launch has been handed over; the graph, if it is to be destroyed now.
    pub(crate) fn graph_launched(&mut self, graph: u64) -> Option<u64> {
        let graph_use = self.graphs.get_mut(&graph)?;
        graph_use.pending_launches = graph_use.pending_launches.saturating_sub(1);
        let (finished, destroy) = (graph_use.pending_launches == 0, graph_use.destroy_requested);
        if finished {
            self.graphs.remove(&graph);
        }
        (finished && destroy).then_some(graph)
    }

    /// Whether launches of a graph wait.
    pub(crate) fn is_graph_waiting(&self, graph: u64) -> bool {
        self.graphs.contains_key(&graph)
    }

    /// The program destroys a graph: whether that has to wait for launches.
    pub(crate) fn request_graph_destroy(&mut self, graph: u64) -> bool {
        self.graphs.get_mut(&graph).map(|graph_use| graph_use.destroy_requested = true).is_some()
    }

    /// Whether a command that a queue has just handed over is what somebody waits for.
    pub(crate) fn is_awaited(&self, id: QueueId) -> bool {
        self.waiters.is_satisfied(id, self.queue_states.get(&id).map(|queue_state| queue_state.submitted))
    }

    /// The queue's handle means it no longer: the driver may give it to another stream.
    pub(crate) fn unmap_handle(&mut self, id: QueueId) {
        self.streams.retain(|_, named| *named != id);
    }

    /// Forgets a queue.
    pub(crate) fn remove(&mut self, id: QueueId) -> Option<QueueState> {
        self.unmap_handle(id);
        let queue_state = self.queue_states.remove(&id)?;
        queue_state.queue.admission.close();
        for (_, other) in self.queue_states() {
            other.queue.in_flight.with_gate_sequence(|sequence| sequence.remove_needs_of(id));
        }
        let followers: Vec<_> = self.ordered_with(queue_state.queue.stream()).map(|(id, _)| id).collect();
        followers.into_iter().for_each(|id| self.update_admission(id));
        Some(queue_state)
    }
}
