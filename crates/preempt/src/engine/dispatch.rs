//! Dispatch: submitting pending operations. Called by the worker, or step by step by a test.

use std::sync::Arc;

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::events::{GatePosition, GenerationId};
use crate::ids::{Code, Event, Stream};
use crate::outcome::Notice;
use crate::queue::Queue;
use crate::queue_table::{Operation, SelectedEntry, Selection};
use crate::sync::lock;

/// Interval at which the GPU is asked whether there is room in an in-flight window.
const POLL_NS: u64 = 50_000;

/// When to call `dispatch` again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextDispatch {
    /// When woken.
    WhenWoken,
    /// At this time, or when woken.
    At(u64),
}

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Submits everything that may go, and ends preemptions whose time is over.
    pub fn dispatch(&self) -> NextDispatch {
        if self.is_abandoned() {
            return NextDispatch::WhenWoken;
        }
        let full = self.with_relaxed_capture(|| {
            self.refresh_captures();
            self.dispatch_selected()
        });
        let now = self.clock.now_ns();
        let due = self.run_timers(now).into_iter().chain(full.then_some(now + POLL_NS)).min();
        due.map_or(NextDispatch::WhenWoken, NextDispatch::At)
    }

    /// Submits until nothing may go. Returns `true` if a bound prevents a submission.
    fn dispatch_selected(&self) -> bool {
        loop {
            let picked = self.lock_table().select_next();
            match picked {
                Selection::Submit(task) => self.submit_entry(*task),
                Selection::Release => self.open_needed_gates(),
                Selection::Nothing { full } => {
                    let mut moved = false;
                    for queue in &full {
                        let before = queue.in_flight.progress_count();
                        self.mark(queue, true);
                        queue.in_flight.retire(&self.driver);
                        moved |= queue.in_flight.progress_count() != before;
                        self.end_driver_use(queue);
                    }
                    if !moved {
                        return !full.is_empty();
                    }
                }
            }
        }
    }

    fn submit_entry(&self, task: SelectedEntry) {
        let queue = &task.queue;
        self.place_gate(queue, task.gate);
        let result = match &task.entry.operation {
            Operation::ByCaller => {
                self.notify_waiters(&self.lock_table());
                return;
            }
            Operation::Command(command) => self.driver.submit(queue.stream(), command),
            Operation::Record(generation) => self.record_generation(queue, *generation),
            Operation::Wait(generation) => {
                let result = self.wait_generation(queue, *generation);
                self.end_event_use();
                result
            }
        };
        self.mark(queue, false);
        if let Some(graph) = task.entry.operation.graph()
            && let Some(graph) = self.lock_table().graph_used(graph)
        {
            let _ = self.driver.destroy_graph(graph);
        }
        self.finish_entry(queue, result);
    }

    /// The driver has the operation of a submitting queue, and returned `result`.
    pub(super) fn finish_entry(&self, queue: &Queue, result: Result<(), Code>) {
        let mut table = self.lock_table();
        if let (Err(code), Some(queue_state)) = (result, table.queue_state_mut(queue.id())) {
            queue_state.record_error(code);
        }
        table.entry_submitted(queue.id());
        self.notify_submitted(&table, queue.id());
        drop(table);
        if let Err(code) = result {
            self.observer.notice(Notice::DeferredCommandFailed(queue.id(), code));
        }
        self.destroy_if_finished(queue);
    }

    /// Records a generation into an event that is free for it.
    pub(super) fn record_generation(&self, queue: &Arc<Queue>, id: GenerationId) -> Result<(), Code> {
        let result =
            self.event_for(queue.stream(), id).and_then(|event| self.driver.record(queue.stream(), event));
        // The number is read after the record has reached the driver: a gate that another thread placed in between is
        // in front of the record.
        let gate = queue.in_flight.with_gate_sequence(|sequence| sequence.placed());
        let behind = queue.is_gated().then(|| GatePosition { queue: Arc::clone(queue), gate });
        lock(&self.events).recorded(id, behind);
        self.unpin_generation(id);
        result
    }

    fn event_for(&self, stream: Stream, id: GenerationId) -> Result<Event, Code> {
        let assigned = lock(&self.events).assign_event(id, stream.context);
        let flags = match assigned {
            Ok(event) => return Ok(event),
            Err(flags) => flags,
        };
        let created = self.driver.create_event(stream.context, flags);
        let used = lock(&self.events).set_event(id, stream.context, created.ok());
        created.or_else(|code| used.ok_or(code))
    }

    /// Makes a stream wait for a generation that the driver has.
    pub(super) fn wait_generation(&self, queue: &Queue, id: GenerationId) -> Result<(), Code> {
        let known = lock(&self.events).handle(id);
        let Some((event, behind)) = known else { return Ok(()) };
        if let Some(behind) = behind {
            self.add_gate_need(queue.id(), &behind);
        }
        let result = self.driver.wait(queue.stream(), event);
        self.unpin_generation(id);
        result
    }
}
