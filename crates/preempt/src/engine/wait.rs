//! Calls that wait for the GPU, or query it.

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::ids::{Code, Context, QueueId};
use crate::queue::Queue;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// `cuStreamQuery`.
    pub fn query_stream(&self, queue: &Queue) -> Result<(), Code> {
        if !self.is_abandoned() && !self.driver.is_capturing(queue.stream()) {
            self.take_deferred_error(queue)?;
            if self.tails(queue).iter().any(|(id, tail)| !self.has_submitted(*id, *tail)) {
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
        self.take_deferred_error(queue).and(result)
    }

    /// Waits until the driver has everything that the queues of a context accepted. For calls that wait for the whole
    /// context: `cuCtxSynchronize`, `cuMemFree`, `cuModuleUnload`. Queues of other contexts do not matter. Returns
    /// the deferred error of one of the queues, which the call should return if it can.
    pub fn flush_context(&self, context: Context) -> Result<(), Code> {
        let tails: Vec<_> = {
            let table = self.lock_table();
            let queue_states =
                table.queue_states().filter(|(_, queue_state)| queue_state.queue.stream().context == context);
            queue_states.map(|(_, queue_state)| (queue_state.queue.clone(), queue_state.accepted)).collect()
        };
        let mut result = Ok(());
        for (queue, tail) in tails {
            self.await_submitted(queue.id(), tail);
            result = result.and(self.take_deferred_error(&queue));
        }
        result
    }

    /// Waits like [`Engine::flush_context`], for calls that do not return deferred errors.
    pub fn flush_context_ignoring_errors(&self, context: Context) {
        let tails: Vec<_> = {
            let table = self.lock_table();
            let queue_states =
                table.queue_states().filter(|(_, queue_state)| queue_state.queue.stream().context == context);
            queue_states.map(|(id, queue_state)| (id, queue_state.accepted)).collect()
        };
        tails.into_iter().for_each(|(id, tail)| self.await_submitted(id, tail));
    }

    /// Positions that the driver has to have before the stream can be waited for there.
    fn tails(&self, queue: &Queue) -> Vec<(QueueId, u64)> {
        let table = self.lock_table();
        let mut tails: Vec<_> = table
            .queue_state(queue.id())
            .map(|queue_state| (queue.id(), queue_state.accepted))
            .into_iter()
            .collect();
        if queue.stream().is_legacy() {
            tails.extend(table.dependencies(queue.stream()));
        }
        tails
    }

    fn has_submitted(&self, id: QueueId, tail: u64) -> bool {
        self.lock_table().queue_state(id).is_none_or(|queue_state| queue_state.submitted >= tail)
    }

    /// Returns the queue's deferred error, if there is one.
    fn take_deferred_error(&self, queue: &Queue) -> Result<(), Code> {
        let mut table = self.lock_table();
        let Some(code) = table.queue_state_mut(queue.id()).and_then(|queue_state| queue_state.take_error())
        else {
            return Ok(());
        };
        table.update_admission(queue.id());
        Err(code)
    }
}
