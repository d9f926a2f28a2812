//! Stopping a stream, and finding out whether it has stopped.

use super::Engine;
use crate::config::PreemptionLevel;
use crate::driver::{ChannelGroupError, Clock, Driver, Observer};
use crate::ids::Code;
use crate::outcome::Error;
use crate::queue::Queue;
use crate::stream_state::{StreamState, Transition};

/// Time after a store within which the GPU has surely read the word and written its progress.
const SETTLED_NS: u64 = 20_000;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Puts the highest possible level in force, and returns it.
    pub(super) fn apply_level(
        &self,
        queue: &Queue,
        epoch: u64,
        asked: PreemptionLevel,
    ) -> Result<PreemptionLevel, Error> {
        let in_force = self.lock_table().in_epoch(queue.id(), epoch)?.preemption.level;
        if let Some(level) = in_force.filter(|level| *level >= asked) {
            return Ok(level);
        }
        // All blocking streams wait for the legacy default stream on the GPU. It may be stopped only in the host
        // queue, where they wait too.
        let asked = if queue.stream().is_legacy() { PreemptionLevel::Host } else { asked };
        let (mut level, mut needed) = (PreemptionLevel::Host, false);
        if asked >= PreemptionLevel::Device && queue.is_gated() {
            needed = self.close_gates(queue, epoch)?;
            level = if queue.in_flight.with_gate_sequence(|sequence| sequence.is_last_refused()) {
                PreemptionLevel::Host
            } else {
                PreemptionLevel::Device
            };
        }
        if asked == PreemptionLevel::Full && !needed {
            match self.disable_group(queue, epoch) {
                Ok(()) => level = PreemptionLevel::Full,
                Err(ChannelGroupError::Unsupported(_)) => {}
                Err(ChannelGroupError::Timeout) => return Err(Error::Timeout { pending: false }),
                Err(ChannelGroupError::ContextSaveFailed) => return Err(Error::ContextSaveFailed),
                Err(ChannelGroupError::InsufficientMemory) => return Err(Error::InsufficientMemory),
                Err(ChannelGroupError::GpuHung) => return Err(Error::GpuHung),
            }
        }
        let mut table = self.lock_table();
        let queue_state = table.in_epoch(queue.id(), epoch)?;
        // The stream may have yielded in between.
        if level == PreemptionLevel::Full && !queue_state.group_control.disable_wanted {
            level = PreemptionLevel::Device;
        }
        if level == PreemptionLevel::Device
            && !queue.in_flight.with_gate_sequence(|sequence| sequence.is_closed())
        {
            level = PreemptionLevel::Host;
        }
        queue_state.preemption.level = queue_state.preemption.level.max(Some(level));
        if queue_state.preemption.level == Some(PreemptionLevel::Host)
            && let Some(gates) = self.driver.stream_gates()
        {
            // Gates that the driver took must not hold up work that is behind none.
            queue_state.open_gates(gates);
        }
        Ok(queue_state.preemption.level.unwrap_or(level))
    }

    /// Whether the stream has stopped. If so, the queue becomes preempted.
    pub(super) fn check_stopped(&self, queue: &Queue, epoch: u64) -> Result<bool, Error> {
        let (fence, level, seen) = {
            let mut table = self.lock_table();
            let queue_state = table.in_epoch(queue.id(), epoch)?;
            match (queue_state.state, queue_state.preemption.level) {
                (StreamState::Preempting, Some(level)) => {
                    queue_state.driver_uses += 1;
                    (queue_state.preemption.fence, level, queue_state.preemption.seen)
                }
                (state, _) => return Ok(state == StreamState::Preempted),
            }
        };
        // Before the progress is read: what the driver knows by then is included in the progress.
        let reached = match fence {
            _ if level == PreemptionLevel::Full => Ok(()),
            Some(fence) => self.with_relaxed_capture(|| self.driver.query_event(fence)),
            None => self.fence(queue, epoch),
        };
        let now = self.clock.now_ns();
        let gates = self.driver.stream_gates().filter(|_| level == PreemptionLevel::Device);
        let progress = gates.map(|gates| gates.progress(queue.stream()));
        let stands = progress.is_some_and(|progress| {
            progress.arrived != progress.passed
                && queue.in_flight.with_gate_sequence(|sequence| sequence.stops_at(progress.arrived))
                && seen.is_some_and(|(before, since)| before == progress && now >= since + SETTLED_NS)
        });
        if level < PreemptionLevel::Full && (reached != Err(Code::NOT_READY) || stands) {
            self.with_relaxed_capture(|| queue.in_flight.retire(&self.driver));
        }
        let mut table = self.lock_table();
        let stopped = table.in_epoch(queue.id(), epoch).map(|queue_state| {
            if progress.is_some_and(|progress| seen.is_none_or(|(before, _)| before != progress)) {
                queue_state.preemption.seen = progress.map(|progress| (progress, now));
            }
            // The observation is about this level; the stream may have yielded in between.
            let stopped =
                (reached != Err(Code::NOT_READY) || stands) && queue_state.preemption.level == Some(level);
            if stopped {
                if level < PreemptionLevel::Full {
                    queue.in_flight.stopped_at(progress.map_or(0, |progress| progress.arrived));
                }
                queue_state.record_if_sticky(reached);
                queue_state.apply(Transition::Stopped);
            }
            stopped
        });
        drop(table);
        self.end_driver_use(queue);
        stopped
    }

    /// Ends a driver use. The last one also destroys stale fences, while the context still cannot end.
    pub(super) fn end_driver_use(&self, queue: &Queue) {
        loop {
            let stale = {
                let mut table = self.lock_table();
                let Some(queue_state) = table.queue_state_mut(queue.id()) else { return };
                if queue_state.driver_uses > 1 || queue_state.stale_fences.is_empty() {
                    queue_state.driver_uses -= 1;
                    break;
                }
                std::mem::take(&mut queue_state.stale_fences)
            };
            for fence in stale {
                let _ = self.driver.destroy_event(fence);
            }
        }
        self.destroy_if_finished(queue);
    }

    /// Makes driver calls on a stream that another thread may destroy at the same time, or whose context it may end.
    /// `None` if that has happened.
    pub fn with_stream<R>(&self, queue: &Queue, calls: impl FnOnce() -> R) -> Option<R> {
        {
            let mut table = self.lock_table();
            table.queue_state(queue.id()).filter(|queue_state| !queue_state.closing)?;
            table.begin_driver_use(queue.id())?;
        }
        let result = calls();
        self.end_driver_use(queue);
        Some(result)
    }

    /// Records an event behind everything that the driver has of the stream, and asks for it.
    ///
    /// On a capturing stream the record would change the program's graph. Whether such a stream has stopped is
    /// therefore unknown.
    fn fence(&self, queue: &Queue, epoch: u64) -> Result<(), Code> {
        if self.driver.is_capturing(queue.stream()) {
            return Err(Code::NOT_READY);
        }
        let fence = self.driver.create_event(queue.stream().context, 0)?;
        let recorded = self.driver.record(queue.stream(), fence);
        self.add_legacy_needs(queue);
        let mut table = self.lock_table();
        match table.in_epoch(queue.id(), epoch) {
            Ok(queue_state) if queue_state.preemption.fence.is_none() && recorded.is_ok() => {
                queue_state.preemption.fence = Some(fence);
            }
            _ => {
                drop(table);
                let _ = self.driver.destroy_event(fence);
                return recorded.and(Err(Code::NOT_READY));
            }
        }
        drop(table);
        self.with_relaxed_capture(|| self.driver.query_event(fence))
    }
}
