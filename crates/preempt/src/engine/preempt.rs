//! Preempting a stream.

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
    /// How long the preemption lasts unless it is renewed; `None` for no limit.
    pub lease_ns: Option<u64>,
}

impl Default for Request {
    fn default() -> Self {
        Self { level: None, sync: false, timeout_ns: 1_000_000_000, lease_ns: None }
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
        let lease = request.lease_ns.map(|lease| now.saturating_add(lease));
        let outage = config.outage_ns.map(|outage| queue_state.preemption.since_ns.saturating_add(outage));
        queue_state.preemption.until_ns = lease.into_iter().chain(outage).min();
        let ends = queue_state.preemption.until_ns.is_some();
        let epoch = queue_state.epoch;
        if table.is_yielding(queue.id())
            && let (Some(gates), Some(queue_state)) =
                (self.driver.stream_gates(), table.queue_state_mut(queue.id()))
        {
            queue_state.open_gates(gates);
        }
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
            let table = self.lock_table();
            let queue_state = table
                .queue_state(queue.id())
                .filter(|queue_state| queue_state.epoch == epoch)
                .ok_or(Error::InvalidState)?;
            Ok(!queue_state.submitting && !queue.admission.has_entrants())
        })?;
        let level = self.apply_level(queue, epoch, level)?;
        let stopped = if sync {
            self.wait_until(deadline, || self.check_stopped(queue, epoch))?;
            true
        } else {
            self.check_stopped(queue, epoch)?
        };
        // The stream may have yielded to a module load in between.
        let table = self.lock_table();
        let queue_state = table.queue_state(queue.id()).filter(|queue_state| queue_state.epoch == epoch);
        Ok(queue_state.map_or((level, stopped), |queue_state| {
            (
                queue_state.preemption.level.unwrap_or(level),
                stopped && queue_state.state == StreamState::Preempted,
            )
        }))
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
