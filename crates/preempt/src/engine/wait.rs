//! Calls that wait for the GPU, or ask it.

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::ids::{Code, Context, QueueId};
use crate::queue::Queue;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// `cuStreamQuery`.
    pub fn query_stream(&self, queue: &Queue) -> Result<(), Code> {
        if !self.is_abandoned() && !self.driver.is_capturing(queue.stream()) {
            self.told(queue)?;
            if self.tails(queue).iter().any(|(id, tail)| !self.has_submitted(*id, *tail)) {
                return Err(Code::NOT_READY);
            }
        }
        self.driver.query_stream(queue.stream())
    }

    /// `cuStreamSynchronize`: for everything that was accepted before.
    pub fn synchronize_stream(&self, queue: &Queue) -> Result<(), Code> {
        if self.is_abandoned() || self.driver.is_capturing(queue.stream()) {
            return self.driver.synchronize_stream(queue.stream());
        }
        for (id, tail) in self.tails(queue) {
            self.await_submitted(id, tail);
        }
        let result = self.driver.synchronize_stream(queue.stream());
        self.told(queue).and(result)
    }

    /// Waits until everything that the queues of a context have accepted is with the driver: before calls that wait for the
    /// whole context, `cuCtxSynchronize`, `cuMemFree`, `cuModuleUnload`. Queues of other contexts do not matter. A deferred
    /// error of one of them is what the call should return, if it may.
    pub fn settle_context(&self, context: Context) -> Result<(), Code> {
        let tails: Vec<_> = {
            let book = self.book();
            let lanes = book.lanes().filter(|(_, lane)| lane.queue.stream().context == context);
            lanes.map(|(_, lane)| (lane.queue.clone(), lane.accepted)).collect()
        };
        let mut result = Ok(());
        for (queue, tail) in tails {
            self.await_submitted(queue.id(), tail);
            result = result.and(self.told(&queue));
        }
        result
    }

    /// Likewise, for calls that are not to tell of an error.
    pub fn await_context(&self, context: Context) {
        let tails: Vec<_> = {
            let book = self.book();
            let lanes = book.lanes().filter(|(_, lane)| lane.queue.stream().context == context);
            lanes.map(|(id, lane)| (id, lane.accepted)).collect()
        };
        tails.into_iter().for_each(|(id, tail)| self.await_submitted(id, tail));
    }

    /// What has to be with the driver before the stream can be waited for there.
    fn tails(&self, queue: &Queue) -> Vec<(QueueId, u64)> {
        let book = self.book();
        let mut tails: Vec<_> =
            book.lane(queue.id()).map(|lane| (queue.id(), lane.accepted)).into_iter().collect();
        if queue.stream().is_legacy() {
            tails.extend(book.dependencies(queue.stream()));
        }
        tails
    }

    fn has_submitted(&self, id: QueueId, tail: u64) -> bool {
        self.book().lane(id).is_none_or(|lane| lane.submitted >= tail)
    }

    /// The deferred error of the queue, if there is one to be told.
    fn told(&self, queue: &Queue) -> Result<(), Code> {
        let mut book = self.book();
        let Some(code) = book.lane_mut(queue.id()).and_then(|lane| lane.tell()) else { return Ok(()) };
        book.settle(queue.id());
        Err(code)
    }
}
