//! The end of streams and graphs (of contexts: `context`).

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::ids::Code;
use crate::queue::Queue;

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

    /// `cuGraphExecDestroy`; done after the last pending launch.
    pub fn destroy_graph(&self, graph: u64) -> Result<(), Code> {
        if !self.is_abandoned() && self.lock_table().request_graph_destroy(graph) {
            return Ok(());
        }
        self.driver.destroy_graph(graph)
    }

    /// Before `cuGraphExecUpdate`: waits until no launch is pending that would see the change.
    pub fn await_graph(&self, graph: u64) {
        let mut table = self.lock_table();
        while !self.is_abandoned() && table.is_graph_waiting(graph) {
            table = self.await_change(table);
        }
    }
}
