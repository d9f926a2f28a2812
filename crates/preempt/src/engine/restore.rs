//! Restoring a stream.

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::outcome::Error;
use crate::queue::Queue;
use crate::stream_state::{StreamState, Transition};

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Restores a stream. A preemption in progress is given up: the last call wins.
    pub fn restore(&self, queue: &Queue) -> Result<(), Error> {
        {
            let table = self.lock_table();
            let queue_state = table.queue_state(queue.id()).ok_or(Error::InvalidStream)?;
            queue_state.config.ok_or(Error::NotEnabled)?;
        }
        self.resume(queue, None);
        Ok(())
    }

    /// Restores all streams: the process is about to end.
    pub fn restore_all(&self) {
        let queues: Vec<_> =
            self.lock_table().queue_states().map(|(_, queue_state)| queue_state.queue.clone()).collect();
        queues.iter().for_each(|queue| self.resume(queue, None));
    }

    /// Restores the queue after a failed preemption, unless it was preempted before.
    pub(super) fn roll_back(&self, queue: &Queue, epoch: u64, before: StreamState) {
        if !before.is_under_preemption() {
            self.resume(queue, Some(epoch));
        }
    }

    /// Opens gates, enables the channel group and opens admission, unless another call came in between. With `only`,
    /// does nothing unless the queue is still in that epoch.
    pub(super) fn resume(&self, queue: &Queue, only: Option<u64>) {
        let epoch = {
            let mut table = self.lock_table();
            let Some(queue_state) = table.queue_state_mut(queue.id()) else { return };
            if only.is_some_and(|only| only != queue_state.epoch) {
                return;
            }
            let Some(next) = queue_state.state.after(Transition::Restore) else { return };
            queue_state.state = next;
            queue_state.epoch += 1;
            queue_state.group_control.disable_wanted = false;
            let preemption = std::mem::take(&mut queue_state.preemption);
            let epoch = queue_state.epoch;
            let gates = self.driver.stream_gates().filter(|_| queue.is_gated());
            // Before the stream goes on: what it does from here on is measured.
            queue.in_flight.interrupted(gates.map_or(0, |gates| gates.progress(queue.stream()).arrived));
            if let Some(gates) = gates {
                queue.in_flight.with_gate_sequence(|sequence| {
                    sequence.open();
                    gates.store_word(queue.stream(), sequence.word());
                });
            }
            if let Some(queue_state) = table.queue_state_mut(queue.id()) {
                // Another thread may be asking the driver about the fence, and no thread may end its context in
                // between.
                queue_state.stale_fences.extend(preemption.fence);
                queue_state.driver_uses += 1;
            }
            epoch
        };
        self.end_driver_use(queue);
        self.enable_group(queue);
        let mut table = self.lock_table();
        if let Some(queue_state) =
            table.queue_state_mut(queue.id()).filter(|queue_state| queue_state.epoch == epoch)
        {
            queue_state.state = queue_state.state.after(Transition::Opened).unwrap_or(queue_state.state);
        }
        table.update_admission(queue.id());
        self.notify_waiters(&table);
        drop(table);
        self.open_needed_gates();
        self.observer.wake();
        self.destroy_if_finished(queue);
    }
}
