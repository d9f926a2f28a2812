//! The program's calls on events.

use std::sync::Arc;

use super::Engine;
use super::submit::{Enqueued, PendingCall};
use crate::command::Work;
use crate::driver::{Clock, Driver, EventFlags, Observer};
use crate::events::{GenerationId, LatestRecord, RecordPlace};
use crate::ids::{Code, Event, QueueId};
use crate::queue::Queue;
use crate::sync::lock;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// The program has created an event; `shared` if other processes may know it.
    pub fn event_created(&self, event: Event, flags: EventFlags, shared: bool) {
        lock(&self.events).register(event, flags, shared);
    }

    /// The event was recorded without the engine: only the driver knows its meaning from here on.
    pub fn recorded_elsewhere(&self, event: Event) {
        lock(&self.events).mark_captured(event);
    }

    /// `cuEventRecord`.
    pub fn record(&self, queue: &Arc<Queue>, event: Event) -> Result<(), Code> {
        if self.is_abandoned() {
            return self.driver.record(queue.stream(), event);
        }
        if self.driver.is_capturing(queue.stream()) {
            lock(&self.events).mark_captured(event);
            return self.driver.record(queue.stream(), event);
        }
        loop {
            let admitted = queue.admission.enter();
            let full = admitted.is_some();
            if let Some(_admitted) = admitted
                && let Some(gate) = self.reserve_in_flight(queue, Work::Small)
            {
                let generation = lock(&self.events).begin_record(event, RecordPlace::Submitted);
                let generation = generation.ok_or(Code::INVALID_HANDLE)?;
                self.place_gate(queue, gate);
                let result = self.record_generation(queue, generation);
                self.submitted(queue);
                return result;
            }
            if let Enqueued::At(_) = self.enqueue(queue, full, PendingCall::Record(event))? {
                return Ok(());
            }
        }
    }

    /// `cuStreamWaitEvent`, for the latest record at the time of the call.
    pub fn wait(&self, queue: &Queue, event: Event) -> Result<(), Code> {
        if self.is_abandoned() {
            return self.driver.wait(queue.stream(), event);
        }
        let seen = lock(&self.events).pin_latest(event);
        if self.driver.is_capturing(queue.stream()) {
            let (pinned, handle) = match seen {
                LatestRecord::Submitted(generation, handle) => (Some(generation), handle),
                LatestRecord::Queued(generation, ..) => (Some(generation), event),
                LatestRecord::Captured | LatestRecord::Destroyed => (None, event),
            };
            let result = self.driver.wait(queue.stream(), handle);
            pinned.into_iter().for_each(|generation| self.unpin_generation(generation));
            return result;
        }
        let (generation, after) = match seen {
            LatestRecord::Destroyed => return Err(Code::INVALID_HANDLE),
            LatestRecord::Captured => return self.join_capture(queue, event),
            LatestRecord::Submitted(generation, ..) => (generation, Vec::new()),
            LatestRecord::Queued(generation, leader, position) => (generation, vec![(leader, position + 1)]),
        };
        self.wait_for(queue, generation, after)
    }

    /// Waits for a generation that `pin_latest` pinned.
    fn wait_for(
        &self,
        queue: &Queue,
        generation: GenerationId,
        mut after: Vec<(QueueId, u64)>,
    ) -> Result<(), Code> {
        let mut deferred = !after.is_empty();
        loop {
            let admitted = if deferred { None } else { queue.admission.enter() };
            let bounded = admitted.is_some();
            if let Some(_admitted) = admitted
                && let Some(gate) = self.reserve_in_flight(queue, Work::Small)
            {
                self.place_gate(queue, gate);
                let result = self.wait_generation(queue, generation);
                self.submitted(queue);
                return result;
            }
            match self.enqueue(queue, bounded, PendingCall::Wait(generation, after)) {
                Ok(Enqueued::At(_)) => return Ok(()),
                Ok(Enqueued::Bypassed(what)) => after = what.after(),
                Err(code) => {
                    self.unpin_generation(generation);
                    return Err(code);
                }
            }
            deferred = false;
        }
    }

    /// `cuEventQuery`.
    pub fn query_event(&self, event: Event) -> Result<(), Code> {
        self.with_handle(event, false, |handle| self.driver.query_event(handle))
    }

    /// `cuEventSynchronize`, for the latest record at the time of the call.
    pub fn synchronize_event(&self, event: Event) -> Result<(), Code> {
        self.with_handle(event, true, |handle| self.driver.synchronize_event(handle))
    }

    /// `cuEventElapsedTime`, in nanoseconds. Time in which the stream was stopped counts.
    pub fn elapsed_ns(&self, from: Event, to: Event) -> Result<u64, Code> {
        let mut elapsed = 0;
        self.with_handle(from, false, |from| {
            self.with_handle(to, false, |to| {
                elapsed = self.driver.elapsed_ns(from, to)?;
                Ok(())
            })
        })?;
        Ok(elapsed)
    }

    /// Calls the driver with the event of the latest record, once the driver has that record.
    fn with_handle(
        &self,
        event: Event,
        wait_for_record: bool,
        call: impl FnOnce(Event) -> Result<(), Code>,
    ) -> Result<(), Code> {
        if self.is_abandoned() {
            return call(event);
        }
        let seen = lock(&self.events).pin_latest(event);
        let (generation, handle) = match seen {
            LatestRecord::Destroyed => return Err(Code::INVALID_HANDLE),
            LatestRecord::Captured => return call(event),
            LatestRecord::Submitted(generation, handle) => (generation, Ok(handle)),
            LatestRecord::Queued(generation, queue, position) if wait_for_record => {
                self.await_submitted(queue, position + 1);
                let there = lock(&self.events).handle(generation);
                (generation, Ok(there.map_or(event, |(handle, _)| handle)))
            }
            LatestRecord::Queued(generation, ..) => (generation, Err(Code::NOT_READY)),
        };
        let result = handle.and_then(call);
        self.unpin_generation(generation);
        result
    }

    /// `cuEventDestroy`; returns at once. Records and waits that still refer to the event keep it.
    pub fn destroy_event(&self, event: Event) -> Result<(), Code> {
        if self.is_abandoned() {
            return self.driver.destroy_event(event);
        }
        let freed = lock(&self.events).destroy(event);
        freed.map_or(Ok(()), |(event, _)| self.driver.destroy_event(event))
    }

    /// Releases a pin of the generation.
    pub(super) fn unpin_generation(&self, generation: GenerationId) {
        let freed = lock(&self.events).unpin(generation);
        if let Some((event, context)) = freed {
            self.destroy_event_later(event, context);
        }
    }
}
