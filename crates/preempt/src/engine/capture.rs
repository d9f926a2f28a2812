//! Captures: calls on a capturing stream go straight to the driver, and nothing older of that stream may join them.

use super::Engine;
use crate::book::{Book, Lane};
use crate::driver::{Clock, Driver, Observer};
use crate::ids::{Code, Event, QueueId};
use crate::queue::Queue;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// `cuStreamBeginCapture`, as `now`. What waits in the queue waits until the capture has ended; nothing is synchronised.
    pub fn begin_capture(&self, queue: &Queue, now: impl FnOnce() -> Result<(), Code>) -> Result<(), Code> {
        let guarded = self.guard_capture(queue);
        let result = now();
        self.has_begun(&guarded);
        result
    }

    /// After `cuStreamEndCapture`, on whichever stream.
    pub fn end_capture(&self) {
        self.observer.wake();
    }

    /// A wait for an event of a capture draws the stream into it.
    pub(super) fn join_capture(&self, queue: &Queue, event: Event) -> Result<(), Code> {
        let guarded = self.guard_capture(queue);
        let result = self.driver.wait(queue.stream(), event);
        self.has_begun(&guarded);
        result
    }

    /// The worker asks before it submits to this stream again, or to the legacy default stream that a blocking one is tied to. Until
    /// `has_begun` it need not ask.
    fn guard_capture(&self, queue: &Queue) -> Vec<QueueId> {
        let mut book = self.book();
        let guarded: Vec<_> = book.tied_by_capture(queue.stream()).chain([queue.id()]).collect();
        for id in &guarded {
            if let Some(lane) = book.lane_mut(*id) {
                lane.capture.possible = true;
                lane.capture.beginning += 1;
                lane.capture.begun += 1;
            }
        }
        // A turn in person is another thread's call: to make it beside the beginning of a capture is that program's race.
        let is_busy =
            |book: &Book, id: &QueueId| book.lane(*id).is_some_and(|lane| lane.busy && lane.turn.is_none());
        while !self.is_abandoned() && guarded.iter().any(|id| is_busy(&book, id)) {
            book = self.await_change(book);
        }
        guarded
    }

    /// From here on the driver says whether there is a capture.
    fn has_begun(&self, guarded: &[QueueId]) {
        let mut book = self.book();
        for id in guarded {
            if let Some(lane) = book.lane_mut(*id) {
                lane.capture.beginning -= 1;
            }
        }
        drop(book);
        // It may have been refused.
        self.observer.wake();
    }

    /// Lets queues go on whose captures have ended.
    pub(super) fn refresh_captures(&self) {
        let marked: Vec<_> = {
            let mut book = self.book();
            let asks = |lane: &Lane| {
                lane.capture.possible && lane.capture.beginning == 0 && !lane.waiting.is_empty()
            };
            let ids: Vec<_> = book.lanes().filter(|(_, lane)| asks(lane)).map(|(id, _)| id).collect();
            let looks = ids
                .into_iter()
                .filter_map(|id| book.look(id).map(|lane| (lane.queue.clone(), lane.capture.begun)));
            looks.collect()
        };
        for (queue, begun) in marked {
            if !self.driver.is_capturing(queue.stream())
                && let Some(lane) =
                    self.book().lane_mut(queue.id()).filter(|lane| lane.capture.begun == begun)
            {
                lane.capture.possible = false;
            }
            self.looked(&queue);
        }
    }
}
