//! The end of streams, graphs and contexts. For a context the caller calls `begin_context_end`, then the driver, then
//! `finish_context_end` or `cancel_context_end`.

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::ids::{Code, Context, Event, QueueId};
use crate::queue::Queue;
use crate::queue_table::{Operation, QueueState, QueueTable};
use crate::stream_state::StreamState;
use crate::sync::lock;
use std::sync::Arc;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// `cuStreamDestroy`; returns at once. Pending commands are submitted when the stream is restored; then the
    /// driver's stream is destroyed. The handle no longer refers to the queue.
    pub fn destroy_stream(&self, queue: &Queue) -> Result<(), Code> {
        if self.is_abandoned() {
            return self.driver.destroy_stream(queue.stream());
        }
        let mut table = self.lock_table();
        let queue_state = table
            .queue_state_mut(queue.id())
            .filter(|queue_state| !queue_state.closing)
            .ok_or(Code::INVALID_HANDLE)?;
        queue_state.closing = true;
        table.update_admission(queue.id());
        self.notify_waiters(&table);
        drop(table);
        self.destroy_if_finished(queue);
        Ok(())
    }

    /// Destroys a stream that the program has destroyed, once nothing is pending and no thread uses it.
    pub(super) fn destroy_if_finished(&self, queue: &Queue) {
        {
            let mut table = self.lock_table();
            // The streams of a context that is ending end with it.
            let still = table.ending_contexts.is_quiesced(queue.stream().context);
            let ready = table
                .queue_state_mut(queue.id())
                .filter(|queue_state| queue_state.is_finished() && queue_state.driver_uses == 0 && !still);
            let Some(queue_state) = ready else { return };
            // The context must not end before this: the thread that ends it waits for driver uses.
            queue_state.driver_uses += 1;
            table.unmap_handle(queue.id());
        }
        for mark in queue.in_flight.take_marks() {
            let _ = self.driver.destroy_event(mark);
        }
        let _ = self.driver.destroy_stream(queue.stream());
        let mut table = self.lock_table();
        table.remove(queue.id());
        self.notify_waiters(&table);
    }

    /// `cuGraphExecDestroy`; done after the last pending command that uses the graph.
    pub fn destroy_graph(&self, graph: u64) -> Result<(), Code> {
        if !self.is_abandoned() && self.lock_table().request_graph_destroy(graph) {
            return Ok(());
        }
        self.driver.destroy_graph(graph)
    }

    /// Before `cuGraphExecUpdate`: waits until no command is pending that would see the change.
    pub fn await_graph(&self, graph: u64) {
        let mut table = self.lock_table();
        while !self.is_abandoned() && table.is_graph_waiting(graph) {
            table = self.await_change(table, None);
        }
    }

    /// Before a call that ends the context, or may end it: everything of it is restored and submitted. After the
    /// return the engine makes no calls of its own for the context, and nothing of it can be preempted.
    pub fn begin_context_end(&self, context: Context) {
        let queues: Vec<(Arc<Queue>, u64)> = {
            let mut table = self.lock_table();
            table.ending_contexts.begin(context);
            let accepted = |queue_state: &QueueState| (Arc::clone(&queue_state.queue), queue_state.accepted);
            table.in_context(context).map(accepted).collect()
        };
        queues.iter().for_each(|(queue, _)| self.resume(queue, None));
        let tails: Vec<_> = queues.iter().map(|(queue, tail)| (queue.id(), *tail)).collect();
        while !self.is_abandoned() && !self.try_quiesce(context, &tails) {
            self.dispatch();
            self.clock.pause(20_000);
        }
        let mut table = self.lock_table();
        while !self.is_abandoned() && table.ending_contexts.event_uses > 0 {
            table = self.await_change(table, None);
        }
    }

    fn try_quiesce(&self, context: Context, tails: &[(QueueId, u64)]) -> bool {
        let mut table = self.lock_table();
        let still =
            is_unused(&table, context) && tails.iter().all(|(id, tail)| table.has_submitted(*id, *tail));
        if still {
            table.ending_contexts.mark_quiesced(context);
        }
        still
    }

    /// The driver's call has not ended the context.
    pub fn cancel_context_end(&self, context: Context) {
        let queues = {
            let mut table = self.lock_table();
            table.ending_contexts.finish(context);
            self.notify_waiters(&table);
            table.queues(|queue_state| queue_state.stream().context == context)
        };
        queues.iter().for_each(|queue| self.destroy_if_finished(queue));
        self.destroy_postponed();
        self.observer.wake();
    }

    /// The driver has ended the context, and with it its streams and events. The engine forgets them.
    pub fn finish_context_end(&self, context: Context) {
        let mut table = self.lock_table();
        table.ending_contexts.finish(context);
        let ids: Vec<_> = table.in_context(context).map(QueueState::id).collect();
        let mut meant = Vec::new();
        for queue_state in ids.into_iter().filter_map(|id| table.remove(id)).collect::<Vec<_>>() {
            for entry in queue_state.pending {
                // A graph that is to be destroyed ended with its context.
                entry.operation.graph().and_then(|graph| table.graph_used(graph));
                match entry.operation {
                    Operation::Record(generation) | Operation::Wait(generation) => meant.push(generation),
                    Operation::Command(_) | Operation::ByCaller => {}
                }
            }
        }
        lock(&self.events).forget_context(context);
        table.postponed_destroys.retain(|(_, of)| *of != Some(context));
        self.notify_waiters(&table);
        drop(table);
        meant.into_iter().for_each(|generation| self.unpin_generation(generation));
        self.destroy_postponed();
        self.observer.wake();
    }

    /// Destroys an unused event as soon as no context is ending; it may belong to that context.
    pub(super) fn destroy_event_later(&self, event: Event, context: Option<Context>) {
        self.lock_table().postponed_destroys.push((event, context));
        self.destroy_postponed();
    }

    fn destroy_postponed(&self) {
        let events = {
            let mut table = self.lock_table();
            if table.ending_contexts.is_any_quiesced() || table.postponed_destroys.is_empty() {
                return;
            }
            table.ending_contexts.event_uses += 1;
            std::mem::take(&mut table.postponed_destroys)
        };
        for (event, _) in events {
            // The program's own destroy call has returned already, so there is no caller for the error.
            let _ = self.driver.destroy_event(event);
        }
        self.end_event_use();
    }

    /// Ends a use of an event in the driver.
    pub(super) fn end_event_use(&self) {
        let mut table = self.lock_table();
        table.ending_contexts.event_uses -= 1;
        self.notify_waiters(&table);
    }
}

/// Whether no thread of the engine uses anything of the context, nor will have to.
fn is_unused(table: &QueueTable, context: Context) -> bool {
    table.in_context(context).all(|queue_state| {
        let is_submitted = !queue_state.submitting || queue_state.admitted_caller.is_some();
        let group_controlled = queue_state.group_control.disabled || queue_state.group_control.changing;
        is_submitted
            && !group_controlled
            && queue_state.driver_uses == 0
            && queue_state.state == StreamState::Running
    })
}
