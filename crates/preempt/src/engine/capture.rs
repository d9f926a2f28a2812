//! Captures: calls on a capturing stream go straight to the driver, and nothing older of that stream may join them.

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::ids::{Code, Event};
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

    /// The worker asks before it submits to this stream again.
    fn guard_capture(&self, queue: &Queue) {
        let mut book = self.book();
        if let Some(lane) = book.lane_mut(queue.id()) {
            lane.capturing = true;
        }
        // A turn in person is another thread's call: to make it beside the beginning of a capture is that program's race.
        while !self.is_abandoned()
            && book.lane(queue.id()).is_some_and(|lane| lane.busy && lane.turn.is_none())
        {
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
