//! The end of streams and graphs; of contexts: `context`.

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::ids::Code;
use crate::queue::Queue;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// `cuStreamDestroy`: returns at once. What waits is still handed over, when the stream is restored; then the driver's
    /// stream is destroyed. The handle means nothing to the engine from here on.
    pub fn destroy_stream(&self, queue: &Queue) -> Result<(), Code> {
        if self.is_abandoned() {
            return self.driver.destroy_stream(queue.stream());
        }
        let mut book = self.book();
        let lane = book.lane_mut(queue.id()).filter(|lane| !lane.closing).ok_or(Code::INVALID_HANDLE)?;
        lane.closing = true;
        book.settle(queue.id());
        self.announce(&book);
        drop(book);
        self.reap(queue);
        Ok(())
    }

    /// Destroys a stream that the program has destroyed, once nothing of it waits and nobody asks about it.
    pub(super) fn reap(&self, queue: &Queue) {
        {
            let mut book = self.book();
            // With a context that is ending its streams end anyway.
            let still = book.endings.is_still(queue.stream().context);
            let ready =
                book.lane_mut(queue.id()).filter(|lane| lane.is_over() && lane.looking == 0 && !still);
            let Some(lane) = ready else { return };
            // Its context must not end before this has: whoever ends that waits for looks.
            lane.looking += 1;
            book.unname(queue.id());
        }
        for mark in queue.flight.take_events() {
            let _ = self.driver.destroy_event(mark);
        }
        let _ = self.driver.destroy_stream(queue.stream());
        let mut book = self.book();
        book.remove(queue.id());
        self.announce(&book);
    }

    /// `cuGraphExecDestroy`: with launches waiting it is done after the last of them.
    pub fn destroy_graph(&self, graph: u64) -> Result<(), Code> {
        if !self.is_abandoned() && self.book().doom_graph(graph) {
            return Ok(());
        }
        self.driver.destroy_graph(graph)
    }

    /// Before `cuGraphExecUpdate`: no launch waits that would see the change.
    pub fn await_graph(&self, graph: u64) {
        let mut book = self.book();
        while !self.is_abandoned() && book.is_graph_waiting(graph) {
            book = self.await_change(book);
        }
    }
}
