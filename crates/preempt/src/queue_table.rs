//! All queues that are not simply passing: what waits, for what, and who may go next. No driver call is made in here.

mod ending;
mod lane;
mod loads;
mod pick;
mod waiters;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ids::{Context, Event, QueueId, Stream};
use crate::queue::Queue;
use crate::state::State;

pub(crate) use ending::Endings;
pub(crate) use lane::{Entry, Lane, Sliced, What};
pub(crate) use loads::Loads;
pub(crate) use pick::{Picked, Task};
pub(crate) use waiters::Waiters;

/// Launches of a graph that wait.
#[derive(Debug, Default)]
struct Uses {
    waiting: usize,
    doomed: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Book {
    lanes: BTreeMap<QueueId, Lane>,
    streams: HashMap<(Context, u64), QueueId>,
    graphs: HashMap<u64, Uses>,
    made: u64,
    /// Threads that wait for something to change.
    pub(crate) waiters: Waiters,
    /// Contexts that are ending.
    pub(crate) endings: Endings,
    /// Contexts in which the driver is about to wait for all that they have been given.
    pub(crate) loads: Loads,
    /// Events that nobody means any more, and their contexts: to be destroyed when no context is ending.
    pub(crate) postponed: Vec<(Event, Option<Context>)>,
    /// Another client is ready: adaptive bounds hold.
    pub(crate) contended: bool,
    /// Whether the queue that the worker last served was this one, so that the next is another.
    cursor: Option<QueueId>,
}

impl Book {
    /// The queue of a stream, made if need be.
    pub(crate) fn queue(&mut self, stream: Stream) -> Arc<Queue> {
        if let Some(lane) =
            self.streams.get(&(stream.context, stream.handle)).and_then(|id| self.lanes.get(id))
        {
            return Arc::clone(&lane.queue);
        }
        self.made += 1;
        let id = QueueId(self.made);
        let queue = Queue::new(id, stream);
        let gated = self
            .lanes()
            .any(|(_, lane)| lane.queue.is_gated() && lane.queue.stream().context == stream.context);
        queue.set_plain(!(gated && stream.is_legacy()));
        self.streams.insert((stream.context, stream.handle), id);
        self.lanes.insert(id, Lane::new(Arc::clone(&queue)));
        self.settle(id);
        queue
    }

    pub(crate) fn lane(&self, id: QueueId) -> Option<&Lane> {
        self.lanes.get(&id)
    }

    pub(crate) fn lane_mut(&mut self, id: QueueId) -> Option<&mut Lane> {
        self.lanes.get_mut(&id)
    }

    /// Counts a thread in that is about to use the stream in the driver, without the book; `None` if it may not, as it is being
    /// destroyed, or its context. Its use is over with `Engine::looked`.
    pub(crate) fn look(&mut self, id: QueueId) -> Option<&mut Lane> {
        let lane = self.lanes.get_mut(&id).filter(|lane| !lane.is_over())?;
        if self.endings.is_still(lane.queue.stream().context) {
            return None;
        }
        lane.looking += 1;
        Some(lane)
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = (QueueId, &Lane)> {
        self.lanes.iter().map(|(id, lane)| (*id, lane))
    }

    pub(crate) fn lanes_mut(&mut self) -> impl Iterator<Item = (QueueId, &mut Lane)> {
        self.lanes.iter_mut().map(|(id, lane)| (*id, lane))
    }

    /// The queues of a context.
    pub(crate) fn within(&self, context: Context) -> impl Iterator<Item = (QueueId, &Lane)> {
        self.lanes().filter(move |(_, lane)| lane.queue.stream().context == context)
    }

    /// Queues that commands of `stream` have to follow, as far as anything waits in them: the legacy default stream follows
    /// all blocking ones, and they follow it.
    fn leaders(&self, stream: Stream) -> impl Iterator<Item = (QueueId, &Lane)> {
        self.lanes().filter(move |(_, lane)| lane.queue.stream().is_ordered_with(stream))
    }

    /// Whether the queue is held by its door alone, as somebody makes a call that waits for all that its context has been given.
    pub(crate) fn yields(&self, id: QueueId) -> bool {
        self.lanes.get(&id).is_some_and(|lane| {
            lane.state.is_held() && lane.yields && self.loads.is_any(lane.queue.stream().context)
        })
    }

    /// Whether streams that run wait on the GPU for whatever this one waits for.
    pub(crate) fn holds_up_runners(&self, stream: Stream) -> bool {
        stream.is_legacy() && self.leaders(stream).any(|(_, lane)| lane.state == State::Running)
    }

    /// Queues that nothing may be submitted to while this stream is captured: it would tie the two.
    pub(crate) fn tied_by_capture(&self, stream: Stream) -> impl Iterator<Item = QueueId> {
        let tied = self.leaders(stream).filter(move |_| !stream.is_legacy());
        tied.map(|(id, _)| id)
    }

    /// Whether a stream has a queue.
    pub(crate) fn knows(&self, stream: Stream) -> bool {
        self.streams.contains_key(&(stream.context, stream.handle))
    }

    /// Whether the stream's handle means this queue.
    pub(crate) fn means(&self, queue: &Queue) -> bool {
        let stream = queue.stream();
        self.streams.get(&(stream.context, stream.handle)) == Some(&queue.id())
    }

    /// What a command accepted now has to come after, in other queues.
    pub(crate) fn dependencies(&self, stream: Stream) -> Vec<(QueueId, u64)> {
        let waiting = self.leaders(stream).filter(|(_, lane)| !lane.is_drained());
        waiting.map(|(id, lane)| (id, lane.accepted)).collect()
    }

    /// Whether commands of this queue may pass without being queued.
    pub(crate) fn passes(&self, id: QueueId) -> bool {
        let Some(lane) = self.lanes.get(&id) else { return false };
        lane.state == State::Running
            && !lane.closing
            && lane.error.is_none()
            && lane.is_drained()
            && self.leaders(lane.queue.stream()).all(|(_, leader)| leader.is_drained())
    }

    /// Opens or shuts the doors of a queue and of those that follow it.
    pub(crate) fn settle(&self, id: QueueId) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let followers = self.leaders(lane.queue.stream()).map(|(follower, _)| follower);
        for id in followers.chain([id]) {
            let Some(lane) = self.lanes.get(&id) else { continue };
            if self.passes(id) {
                lane.queue.door.open();
            } else {
                lane.queue.door.shut();
            }
        }
    }

    /// Puts a command at the end of its queue; its position there.
    pub(crate) fn push(&mut self, id: QueueId, what: What, mut after: Vec<(QueueId, u64)>) -> Option<u64> {
        let stream = self.lanes.get(&id)?.queue.stream();
        after.extend(self.dependencies(stream));
        if let What::Command(crate::command::Command::Graph(graph)) = &what {
            self.graphs.entry(*graph).or_default().waiting += 1;
        }
        let lane = self.lanes.get_mut(&id)?;
        let position = lane.push(Entry { what, after });
        self.settle(id);
        Some(position)
    }

    /// A graph's launch has been handed over; the graph, if it is to be destroyed now.
    pub(crate) fn graph_launched(&mut self, graph: u64) -> Option<u64> {
        let uses = self.graphs.get_mut(&graph)?;
        uses.waiting = uses.waiting.saturating_sub(1);
        let (over, doomed) = (uses.waiting == 0, uses.doomed);
        if over {
            self.graphs.remove(&graph);
        }
        (over && doomed).then_some(graph)
    }

    /// Whether launches of a graph wait.
    pub(crate) fn is_graph_waiting(&self, graph: u64) -> bool {
        self.graphs.contains_key(&graph)
    }

    /// The program destroys a graph: whether that has to wait for launches.
    pub(crate) fn doom_graph(&mut self, graph: u64) -> bool {
        self.graphs.get_mut(&graph).map(|uses| uses.doomed = true).is_some()
    }

    /// Whether a command that a queue has just handed over is what somebody waits for.
    pub(crate) fn is_awaited(&self, id: QueueId) -> bool {
        self.waiters.is_met(id, self.lanes.get(&id).map(|lane| lane.submitted))
    }

    /// The queue's handle means it no longer: the driver may give it to another stream.
    pub(crate) fn unname(&mut self, id: QueueId) {
        self.streams.retain(|_, named| *named != id);
    }

    /// Forgets a queue.
    pub(crate) fn remove(&mut self, id: QueueId) -> Option<Lane> {
        self.unname(id);
        let lane = self.lanes.remove(&id)?;
        lane.queue.door.shut();
        for (_, other) in self.lanes() {
            other.queue.flight.tickets(|tickets| tickets.forget(id));
        }
        let followers: Vec<_> = self.leaders(lane.queue.stream()).map(|(id, _)| id).collect();
        followers.into_iter().for_each(|id| self.settle(id));
        Some(lane)
    }
}
