//! The end of streams and graphs.

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::ids::{Code, Stream};
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

    /// `cuCtxDestroy` and the like: everything of the context runs, and what waits is handed over. The driver's part is the
    /// caller's.
    pub fn end_context(&self, within: impl Fn(Stream) -> bool) {
        let queues: Vec<_> = {
            let book = self.book();
            book.lanes().map(|(_, lane)| lane.queue.clone()).filter(|queue| within(queue.stream())).collect()
        };
        for queue in &queues {
            let _ = self.disable(queue);
        }
        for queue in &queues {
            loop {
                {
                    let mut book = self.book();
                    let Some(lane) = book.lane(queue.id()) else { break };
                    if lane.is_drained() && lane.looking == 0 || self.is_abandoned() {
                        book.remove(queue.id());
                        drop(book);
                        self.destroy_marks(queue);
                        break;
                    }
                }
                self.pump();
                self.clock.pause(20_000);
            }
        }
    }

    /// Destroys a stream that the program has destroyed, once nothing of it waits and nobody asks about it.
    pub(super) fn reap(&self, queue: &Queue) {
        {
            let mut book = self.book();
            let ready = book.lane_mut(queue.id()).filter(|lane| lane.is_over() && lane.looking == 0);
            let Some(lane) = ready else { return };
            // Its context must not end before this has: whoever ends that waits for looks.
            lane.looking += 1;
            book.unname(queue.id());
        }
        self.destroy_marks(queue);
        let _ = self.driver.destroy_stream(queue.stream());
        let mut book = self.book();
        book.remove(queue.id());
        self.announce(&book);
    }

    fn destroy_marks(&self, queue: &Queue) {
        for event in queue.flight.take_events() {
            let _ = self.driver.destroy_event(event);
        }
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
