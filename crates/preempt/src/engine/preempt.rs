//! Preempting and restoring a stream.

use super::Engine;
use crate::config::PreemptionLevel;
use crate::driver::{Clock, Driver, Observer};
use crate::outcome::{Achieved, Error};
use crate::queue::Queue;
use crate::stream_state::{StreamState, Transition};

/// How to preempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Highest level to use, within the queue's own; `None` for the queue's own.
    pub level: Option<PreemptionLevel>,
    /// Whether to return only when the stream has stopped.
    pub sync: bool,
    /// Longest time to wait for that.
    pub timeout_ns: u64,
}

impl Default for Request {
    fn default() -> Self {
        Self { level: None, sync: false, timeout_ns: 1_000_000_000 }
    }
}

/// How long a wait spins before it sleeps.
const SPIN_NS: u64 = 20_000;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Stops a stream. After the return nothing more of it reaches the driver until it is restored, except what a
    /// running queue waits for.
    pub fn preempt(&self, queue: &Queue, request: Request) -> Result<Achieved, Error> {
        let begun = self.clock.now_ns();
        let deadline = begun.saturating_add(request.timeout_ns);
        let (epoch, before, level) = self.begin_preemption(queue, request, begun)?;
        let result = self.carry_out(queue, epoch, level, request.sync, deadline);
        match result {
            Ok((level, stopped)) => {
                Ok(Achieved { level, took_ns: self.clock.now_ns().saturating_sub(begun), stopped })
            }
            Err(Error::Timeout { .. }) => {
                let hung = self.with_stream(queue, || self.driver.is_hung(queue.stream().context));
                if hung == Some(true) {
                    self.roll_back(queue, epoch, before);
                    return Err(Error::GpuHung);
                }
                Err(Error::Timeout { pending: true })
            }
            Err(error) => {
                self.roll_back(queue, epoch, before);
                Err(error)
            }
        }
    }

    /// Changes the state: no further thread is admitted.
    fn begin_preemption(
        &self,
        queue: &Queue,
        request: Request,
        now: u64,
    ) -> Result<(u64, StreamState, PreemptionLevel), Error> {
        let mut table = self.lock_table();
        let ends = table.ending_contexts.is_ending(queue.stream().context);
        let queue_state = table.queue_state_mut(queue.id()).ok_or(Error::InvalidStream)?;
        if queue_state.closing || ends {
            return Err(Error::Closing);
        }
        let config = queue_state.config.ok_or(Error::NotEnabled)?;
        let (before, level) = (queue_state.state, request.level.unwrap_or(config.level).min(config.level));
        if let Some(next) = queue_state.state.after(Transition::Preempt) {
            queue_state.state = next;
            queue_state.epoch += 1;
            queue_state.released_below = 0;
            queue_state.preemption.since_ns = now;
        }
        let preemption = &mut queue_state.preemption;
        preemption.until_ns = config.outage_ns.map(|outage| preemption.since_ns.saturating_add(outage));
        let ends = queue_state.preemption.until_ns.is_some();
        let epoch = queue_state.epoch;
        self.open_gates_if_yielding(&mut table, queue.id());
        table.update_admission(queue.id());
        drop(table);
        if ends {
            self.observer.wake();
        }
        Ok((epoch, before, level))
    }

    fn carry_out(
        &self,
        queue: &Queue,
        epoch: u64,
        level: PreemptionLevel,
        sync: bool,
        deadline: u64,
    ) -> Result<(PreemptionLevel, bool), Error> {
        if level >= PreemptionLevel::Device && queue.is_gated() && !queue.stream().is_legacy() {
            // Gates close first: a thread may be blocked in the driver, and what it submits then comes behind a
            // closed gate.
            self.close_gates(queue, epoch)?;
        }
        self.wait_until(deadline, || {
            let submitting = self.lock_table().in_epoch(queue.id(), epoch)?.submitting;
            Ok(!submitting && !queue.admission.has_entrants())
        })?;
        let level = self.apply_level(queue, epoch, level)?;
        let stopped = if sync {
            self.wait_until(deadline, || self.check_stopped(queue, epoch))?;
            true
        } else {
            self.check_stopped(queue, epoch)?
        };
        // The stream may have yielded to a module load in between.
        let mut table = self.lock_table();
        let Ok(queue_state) = table.in_epoch(queue.id(), epoch) else { return Ok((level, stopped)) };
        let level = queue_state.preemption.level.unwrap_or(level);
        Ok((level, stopped && queue_state.state == StreamState::Preempted))
    }

    /// Restores a stream. A preemption in progress is given up: the last call wins.
    pub fn restore(&self, queue: &Queue) -> Result<(), Error> {
        let config = self.lock_table().queue_state(queue.id()).ok_or(Error::InvalidStream)?.config;
        config.ok_or(Error::NotEnabled)?;
        self.resume(queue, None);
        Ok(())
    }

    /// Restores all streams: the process is about to end.
    pub fn restore_all(&self) {
        let queues = self.lock_table().queues(|_| true);
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
        if let Ok(queue_state) = table.in_epoch(queue.id(), epoch) {
            queue_state.apply(Transition::Opened);
        }
        table.update_admission(queue.id());
        self.notify_waiters(&table);
        drop(table);
        self.open_needed_gates();
        self.observer.wake();
        self.destroy_if_finished(queue);
    }

    /// Waits until `done` or the deadline; spins first.
    pub(super) fn wait_until(
        &self,
        deadline: u64,
        mut done: impl FnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let begun = self.clock.now_ns();
        while !done()? {
            let now = self.clock.now_ns();
            if now >= deadline {
                return Err(Error::Timeout { pending: true });
            }
            self.clock.pause(if now < begun + SPIN_NS { 1_000 } else { 20_000 }.min(deadline - now));
        }
        Ok(())
    }
}
