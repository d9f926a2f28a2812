//! Stream captures. Calls on a capturing stream go straight to the driver, and no older pending command of that
//! stream may join the capture.

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::ids::{Code, Event, QueueId};
use crate::queue::Queue;
use crate::queue_table::{QueueState, QueueTable};

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// `cuStreamBeginCapture`, made by `now`. Pending commands of the queue wait until the capture has ended. Nothing
    /// is synchronised.
    pub fn begin_capture(&self, queue: &Queue, now: impl FnOnce() -> Result<(), Code>) -> Result<(), Code> {
        let guarded = self.guard_capture(queue);
        let result = now();
        self.capture_started(&guarded);
        result
    }

    /// After `cuStreamEndCapture` on any stream.
    pub fn end_capture(&self) {
        self.observer.wake();
    }

    /// A wait for an event of a capture, which draws the stream into the capture.
    pub(super) fn join_capture(&self, queue: &Queue, event: Event) -> Result<(), Code> {
        let guarded = self.guard_capture(queue);
        let result = self.driver.wait(queue.stream(), event);
        self.capture_started(&guarded);
        result
    }

    /// Makes the worker ask the driver before it submits to this stream again, or to the legacy default stream that
    /// the driver orders with it. While `capture_started` has not run, the worker submits nothing there.
    fn guard_capture(&self, queue: &Queue) -> Vec<QueueId> {
        let mut table = self.lock_table();
        let guarded: Vec<_> = table.excluded_by_capture(queue.stream()).chain([queue.id()]).collect();
        for id in &guarded {
            if let Some(queue_state) = table.queue_state_mut(*id) {
                queue_state.capture.possible = true;
                queue_state.capture.starting += 1;
                queue_state.capture.started += 1;
            }
        }
        // A call by its caller comes from another thread. Making it while a capture begins is a race of the program.
        let is_busy = |table: &QueueTable, id: &QueueId| {
            table
                .queue_state(*id)
                .is_some_and(|queue_state| queue_state.submitting && queue_state.admitted_caller.is_none())
        };
        while !self.is_abandoned() && guarded.iter().any(|id| is_busy(&table, id)) {
            table = self.await_change(table, None);
        }
        guarded
    }

    /// From here on the driver knows whether there is a capture.
    fn capture_started(&self, guarded: &[QueueId]) {
        let mut table = self.lock_table();
        for id in guarded {
            if let Some(queue_state) = table.queue_state_mut(*id) {
                queue_state.capture.starting -= 1;
            }
        }
        drop(table);
        // The driver may have refused to begin.
        self.observer.wake();
    }

    /// Lets queues whose captures have ended submit again.
    pub(super) fn refresh_captures(&self) {
        let marked: Vec<_> = {
            let mut table = self.lock_table();
            let asks = |queue_state: &QueueState| {
                queue_state.capture.possible
                    && queue_state.capture.starting == 0
                    && !queue_state.pending.is_empty()
            };
            let looks = table.queues(asks).into_iter().filter_map(|queue| {
                let started = table.begin_driver_use(queue.id())?.capture.started;
                Some((queue, started))
            });
            looks.collect()
        };
        for (queue, begun) in marked {
            if !self.driver.is_capturing(queue.stream())
                && let Some(queue_state) = self
                    .lock_table()
                    .queue_state_mut(queue.id())
                    .filter(|queue_state| queue_state.capture.started == begun)
            {
                queue_state.capture.possible = false;
            }
            self.end_driver_use(&queue);
        }
    }
}
