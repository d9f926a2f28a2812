//! Captures: calls on a capturing stream go straight to the driver, and nothing older of that stream may join them.

use super::Engine;
use crate::book::Book;
use crate::driver::{Clock, Driver, Observer};
use crate::ids::{Code, Event, QueueId};
use crate::queue::Queue;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// `cuStreamBeginCapture`, as `now`. What waits in the queue waits until the capture has ended; nothing is synchronised.
    pub fn begin_capture(&self, queue: &Queue, now: impl FnOnce() -> Result<(), Code>) -> Result<(), Code> {
        self.guard_capture(queue);
        now()
    }

    /// After `cuStreamEndCapture`, on whichever stream.
    pub fn end_capture(&self) {
        self.observer.wake();
    }

    /// A wait for an event of a capture draws the stream into it.
    pub(super) fn join_capture(&self, queue: &Queue, event: Event) -> Result<(), Code> {
        self.guard_capture(queue);
        self.driver.wait(queue.stream(), event)
    }

    /// The worker asks before it submits to this stream again, or to the legacy default stream that a blocking one is tied to.
    fn guard_capture(&self, queue: &Queue) {
        let mut book = self.book();
        let guarded: Vec<_> = book.tied_by_capture(queue.stream()).chain([queue.id()]).collect();
        for id in &guarded {
            if let Some(lane) = book.lane_mut(*id) {
                lane.capturing = true;
            }
        }
        // A turn in person is another thread's call: to make it beside the beginning of a capture is that program's race.
        let is_busy =
            |book: &Book, id: &QueueId| book.lane(*id).is_some_and(|lane| lane.busy && lane.turn.is_none());
        while !self.is_abandoned() && guarded.iter().any(|id| is_busy(&book, id)) {
            book = self.await_change(book);
        }
    }

    /// Lets queues go on whose captures have ended.
    pub(super) fn refresh_captures(&self) {
        let marked: Vec<_> = {
            let book = self.book();
            let capturing = book.lanes().filter(|(_, lane)| lane.capturing && !lane.waiting.is_empty());
            capturing.map(|(_, lane)| lane.queue.clone()).collect()
        };
        for queue in marked.iter().filter(|queue| !self.driver.is_capturing(queue.stream())) {
            if let Some(lane) = self.book().lane_mut(queue.id()) {
                lane.capturing = false;
            }
        }
    }
}
