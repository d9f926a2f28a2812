//! Enabling and disabling preemption for a stream.

use std::sync::Arc;

use super::Engine;
use crate::config::{Config, PreemptionLevel};
use crate::driver::{Clock, Driver, Observer};
use crate::ids::Context;
use crate::in_flight::Bound;
use crate::outcome::Error;
use crate::queue::Queue;
use crate::queue_table::{IdleWatch, QueueTable};

/// Interval at which a thread that waits for room on the GPU asks again.
const POLL_NS: u64 = 20_000;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Enables preemption, or changes its configuration. Does not wait for work that the driver has.
    pub fn enable(&self, queue: &Arc<Queue>, config: Config) -> Result<(), Error> {
        if !config.is_valid() {
            return Err(Error::InvalidConfig);
        }
        let now = self.clock.now_ns();
        let mut table = self.lock_table();
        let queue_state = table.queue_state_mut(queue.id()).ok_or(Error::InvalidStream)?;
        if queue_state.closing {
            return Err(Error::Closing);
        }
        if queue_state.config == Some(config) {
            return Err(Error::AlreadyEnabled);
        }
        queue_state.config = Some(config);
        queue_state.idle =
            IdleWatch { progress_count: queue.in_flight.progress_count(), since_ns: now, notified: true };
        let gates = config.level >= PreemptionLevel::Device && self.driver.stream_gates().is_some();
        if gates && !queue.stream().is_legacy() {
            queue.set_gated();
        }
        apply(&table, queue.stream().context);
        self.notify_waiters(&table);
        drop(table);
        if config.task_timeout_ns.is_some() {
            queue.request_wake();
        }
        Ok(())
    }

    /// Disables preemption: the stream is restored, and pending commands are submitted in order. Returns when nothing
    /// is pending; the GPU may still be working.
    pub fn disable(&self, queue: &Queue) -> Result<(), Error> {
        let accepted = {
            let mut table = self.lock_table();
            let queue_state = table.queue_state_mut(queue.id()).ok_or(Error::InvalidStream)?;
            queue_state.config.take().ok_or(Error::NotEnabled)?;
            let accepted = queue_state.accepted;
            apply(&table, queue.stream().context);
            self.notify_waiters(&table);
            accepted
        };
        self.resume(queue, None);
        while !self.is_abandoned() && !self.lock_table().has_submitted(queue.id(), accepted) {
            self.dispatch();
            self.clock.pause(POLL_NS);
        }
        Ok(())
    }
}

/// Updates the flags that submitting threads read without the table's lock.
fn apply(table: &QueueTable, context: Context) {
    let mut gated = false;
    for queue_state in table.in_context(context) {
        let config = queue_state.config;
        queue_state.queue.in_flight.set_bound(config.map_or(Bound::WIDE, |config| {
            Bound::of(&config, queue_state.queue.is_gated() && config.level >= PreemptionLevel::Device)
        }));
        queue_state.queue.set_counted(config.is_some());
        gated |= queue_state.queue.is_gated();
    }
    for queue_state in table.in_context(context) {
        let legacy = queue_state.stream().is_legacy();
        queue_state.queue.set_unrestricted(!(queue_state.queue.is_counted() || legacy && gated));
    }
}
