//! Calls that wait for the GPU, or query it.

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::ids::{Code, Context, QueueId};
use crate::queue::Queue;
use crate::queue_table::QueueState;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// `cuStreamQuery`.
    pub fn query_stream(&self, queue: &Queue) -> Result<(), Code> {
        if !self.is_abandoned() && !self.driver.is_capturing(queue.stream()) {
            self.take_deferred_error(queue.id())?;
            if self.tails(queue).iter().any(|(id, tail)| !self.lock_table().has_submitted(*id, *tail)) {
                return Err(Code::NOT_READY);
            }
        }
        self.driver.query_stream(queue.stream())
    }

    /// `cuStreamSynchronize`, for everything accepted before.
    pub fn synchronize_stream(&self, queue: &Queue) -> Result<(), Code> {
        if self.is_abandoned() || self.driver.is_capturing(queue.stream()) {
            return self.driver.synchronize_stream(queue.stream());
        }
        for (id, tail) in self.tails(queue) {
            self.await_submitted(id, tail);
        }
        let result = self.driver.synchronize_stream(queue.stream());
        self.take_deferred_error(queue.id()).and(result)
    }

    /// Waits until the driver has everything that the queues of a context accepted. For calls that wait for the whole
    /// context: `cuCtxSynchronize`, `cuMemFree`, `cuModuleUnload`. Queues of other contexts do not matter. Returns
    /// the deferred error of one of the queues, which the call should return if it can.
    pub fn flush_context(&self, context: Context) -> Result<(), Code> {
        let mut result = Ok(());
        for (id, tail) in self.context_tails(context) {
            self.await_submitted(id, tail);
            result = result.and(self.take_deferred_error(id));
        }
        result
    }

    /// Waits like [`Engine::flush_context`], for calls that do not return deferred errors.
    pub fn flush_context_ignoring_errors(&self, context: Context) {
        self.context_tails(context).into_iter().for_each(|(id, tail)| self.await_submitted(id, tail));
    }

    fn context_tails(&self, context: Context) -> Vec<(QueueId, u64)> {
        let table = self.lock_table();
        table.in_context(context).map(|queue_state| (queue_state.id(), queue_state.accepted)).collect()
    }

    /// Positions that the driver has to have before the stream can be waited for there.
    fn tails(&self, queue: &Queue) -> Vec<(QueueId, u64)> {
        let table = self.lock_table();
        let own = table.queue_state(queue.id()).map(|queue_state| (queue.id(), queue_state.accepted));
        let mut tails = Vec::from_iter(own);
        if queue.stream().is_legacy() {
            tails.extend(table.dependencies(queue.stream()));
        }
        tails
    }

    /// Returns the queue's deferred error, if there is one.
    fn take_deferred_error(&self, id: QueueId) -> Result<(), Code> {
        let mut table = self.lock_table();
        let Some(code) = table.queue_state_mut(id).and_then(QueueState::take_error) else { return Ok(()) };
        table.update_admission(id);
        Err(code)
    }
}
