//! Handing over what waits. Called by a worker, or by a test step by step.

use std::sync::Arc;

use super::Engine;
use crate::book::{Picked, Task, What};
use crate::command::Command;
use crate::driver::{Clock, Driver, Observer};
use crate::events::{Behind, GenerationId};
use crate::ids::{Code, Event, Stream};
use crate::outcome::Notice;
use crate::queue::Queue;
use crate::sync::lock;

/// How long the GPU is left alone before it is asked whether it takes more.
const POLL_NS: u64 = 50_000;

/// When to pump again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// When woken.
    Idle,
    /// At this time, or when woken.
    At(u64),
}

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Hands over all that may go, and ends what has run out.
    pub fn pump(&self) -> Next {
        if self.is_abandoned() {
            return Next::Idle;
        }
        let full = self.relaxed(|| {
            self.refresh_captures();
            self.hand_over()
        });
        let now = self.clock.now_ns();
        let due = self.tick(now).into_iter().chain(full.then_some(now + POLL_NS)).min();
        due.map_or(Next::Idle, Next::At)
    }

    /// Submits until nothing may go; whether a bound is in the way of something.
    fn hand_over(&self) -> bool {
        loop {
            let picked = self.book().pick();
            match picked {
                Picked::Task(task) => self.perform(*task),
                Picked::Release => self.open_needed(),
                Picked::Nothing { full } => {
                    let mut moved = false;
                    for queue in &full {
                        let before = queue.flight.steps();
                        self.mark(queue, true);
                        queue.flight.retire(&self.driver);
                        moved |= queue.flight.steps() != before;
                        self.looked(queue);
                    }
                    if !moved {
                        return !full.is_empty();
                    }
                }
            }
        }
    }

    fn perform(&self, task: Task) {
        let queue = &task.queue;
        self.place(queue, task.gate);
        let result = match &task.entry.what {
            What::Turn => {
                self.announce(&self.book());
                return;
            }
            What::Command(command) => self.driver.submit(queue.stream(), command),
            What::Record(generation) => self.record_generation(queue, *generation),
            What::Wait(generation) => {
                let result = self.wait_generation(queue, *generation);
                self.event_used();
                result
            }
        };
        self.mark(queue, false);
        if let What::Command(Command::Graph(graph)) = task.entry.what
            && let Some(graph) = self.book().graph_launched(graph)
        {
            let _ = self.driver.destroy_graph(graph);
        }
        self.finish(queue, result);
    }

    /// A command of a busy queue is with the driver, which said this.
    pub(super) fn finish(&self, queue: &Queue, result: Result<(), Code>) {
        let mut book = self.book();
        if let (Err(code), Some(lane)) = (result, book.lane_mut(queue.id())) {
            lane.fail(code);
        }
        book.done(queue.id());
        self.announce_submitted(&book, queue.id());
        drop(book);
        if let Err(code) = result {
            self.observer.notice(Notice::Deferred(queue.id(), code));
        }
        self.reap(queue);
    }

    /// Records a generation into an event that is free for it.
    pub(super) fn record_generation(&self, queue: &Arc<Queue>, id: GenerationId) -> Result<(), Code> {
        let result =
            self.event_for(queue.stream(), id).and_then(|event| self.driver.record(queue.stream(), event));
        // The number is read after the record has reached the driver: what another thread placed meanwhile is in front of it.
        let gate = queue.flight.tickets(|tickets| tickets.placed());
        let behind = queue.is_gated().then(|| Behind { queue: Arc::clone(queue), gate });
        lock(&self.events).recorded(id, behind);
        self.release(id);
        result
    }

    fn event_for(&self, stream: Stream, id: GenerationId) -> Result<Event, Code> {
        let assigned = lock(&self.events).assign(id, stream.context);
        let flags = match assigned {
            Ok(event) => return Ok(event),
            Err(flags) => flags,
        };
        match self.driver.create_event(stream.context, flags) {
            Ok(event) => {
                lock(&self.events).give(id, stream.context, event);
                Ok(event)
            }
            Err(code) => lock(&self.events).give_own(id, stream.context).ok_or(code),
        }
    }

    /// Makes a stream wait for a generation that the driver has.
    pub(super) fn wait_generation(&self, queue: &Queue, id: GenerationId) -> Result<(), Code> {
        let known = lock(&self.events).handle(id);
        let Some((event, behind)) = known else { return Ok(()) };
        if let Some(behind) = behind {
            self.need(queue.id(), &behind);
        }
        let result = self.driver.wait(queue.stream(), event);
        self.release(id);
        result
    }
}
