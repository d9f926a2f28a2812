//! The program's calls on events.

use std::sync::Arc;

use super::Engine;
use super::submit::{Queued, Ready};
use crate::command::Work;
use crate::driver::{Clock, Driver, EventFlags, Observer};
use crate::events::{GenerationId, Place, Seen};
use crate::ids::{Code, Event, QueueId};
use crate::queue::Queue;
use crate::sync::lock;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// The program has made an event; `shared` if other processes may know it.
    pub fn event_created(&self, event: Event, flags: EventFlags, shared: bool) {
        lock(&self.events).created(event, flags, shared);
    }

    /// The event was recorded without the engine: what it means from here on the driver knows.
    pub fn recorded_elsewhere(&self, event: Event) {
        lock(&self.events).captured(event);
    }

    /// `cuEventRecord`.
    pub fn record(&self, queue: &Arc<Queue>, event: Event) -> Result<(), Code> {
        if self.is_abandoned() {
            return self.driver.record(queue.stream(), event);
        }
        if self.driver.is_capturing(queue.stream()) {
            lock(&self.events).captured(event);
            return self.driver.record(queue.stream(), event);
        }
        loop {
            let inside = queue.door.enter();
            let full = inside.is_some();
            if let Some(_inside) = inside
                && let Some(gate) = self.admit(queue, Work::Small)
            {
                let generation = lock(&self.events).accept(event, Place::Submitted);
                let generation = generation.ok_or(Code::INVALID_HANDLE)?;
                self.place(queue, gate);
                let result = self.record_generation(queue, generation);
                self.submitted(queue);
                return result;
            }
            if let Queued::At(_) = self.enqueue(queue, full, Ready::Record(event))? {
                return Ok(());
            }
        }
    }

    /// `cuStreamWaitEvent`: for the record that is the last one now.
    pub fn wait(&self, queue: &Queue, event: Event) -> Result<(), Code> {
        if self.is_abandoned() {
            return self.driver.wait(queue.stream(), event);
        }
        let seen = lock(&self.events).look(event);
        if self.driver.is_capturing(queue.stream()) {
            let result = self.driver.wait(queue.stream(), seen.handle().unwrap_or(event));
            self.let_go(&seen);
            return result;
        }
        let (generation, after) = match seen {
            Seen::Gone => return Err(Code::INVALID_HANDLE),
            Seen::Captured => return self.join_capture(queue, event),
            Seen::There(generation, ..) => (generation, Vec::new()),
            Seen::Queued(generation, leader, position) => (generation, vec![(leader, position + 1)]),
        };
        self.wait_for(queue, generation, after)
    }

    /// Waits for a generation that `look` pinned.
    fn wait_for(
        &self,
        queue: &Queue,
        generation: GenerationId,
        mut after: Vec<(QueueId, u64)>,
    ) -> Result<(), Code> {
        let mut deferred = !after.is_empty();
        loop {
            let inside = if deferred { None } else { queue.door.enter() };
            let bounded = inside.is_some();
            if let Some(_inside) = inside
                && let Some(gate) = self.admit(queue, Work::Small)
            {
                self.place(queue, gate);
                let result = self.wait_generation(queue, generation);
                self.submitted(queue);
                return result;
            }
            match self.enqueue(queue, bounded, Ready::Wait(generation, after)) {
                Ok(Queued::At(_)) => return Ok(()),
                Ok(Queued::Pass(what)) => after = what.after(),
                Err(code) => {
                    self.release(generation);
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

    /// `cuEventSynchronize`: for the record that is the last one now.
    pub fn synchronize_event(&self, event: Event) -> Result<(), Code> {
        self.with_handle(event, true, |handle| self.driver.synchronize_event(handle))
    }

    /// `cuEventElapsedTime`, in nanoseconds; what a stream stood still in between counts.
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

    /// Calls the driver with what stands for the event's last record, once the driver has that.
    fn with_handle(
        &self,
        event: Event,
        patient: bool,
        call: impl FnOnce(Event) -> Result<(), Code>,
    ) -> Result<(), Code> {
        if self.is_abandoned() {
            return call(event);
        }
        let seen = lock(&self.events).look(event);
        let (generation, handle) = match seen {
            Seen::Gone => return Err(Code::INVALID_HANDLE),
            Seen::Captured => return call(event),
            Seen::There(generation, handle) => (generation, Ok(handle)),
            Seen::Queued(generation, queue, position) if patient => {
                self.await_submitted(queue, position + 1);
                let there = lock(&self.events).handle(generation);
                (generation, Ok(there.map_or(event, |(handle, _)| handle)))
            }
            Seen::Queued(generation, ..) => (generation, Err(Code::NOT_READY)),
        };
        let result = handle.and_then(call);
        self.release(generation);
        result
    }

    /// `cuEventDestroy`: returns at once; what still means the event keeps it.
    pub fn destroy_event(&self, event: Event) -> Result<(), Code> {
        if self.is_abandoned() {
            return self.driver.destroy_event(event);
        }
        let freed = lock(&self.events).destroy(event);
        freed.destroy.map_or(Ok(()), |event| self.driver.destroy_event(event))
    }

    /// Whoever meant the generation is through.
    pub(super) fn release(&self, generation: GenerationId) {
        let freed = lock(&self.events).unpin(generation);
        if let Some(event) = freed.destroy {
            self.destroy_later(event, freed.context);
        }
    }

    /// Gives back what `look` pinned.
    fn let_go(&self, seen: &Seen) {
        if let Seen::Queued(generation, ..) | Seen::There(generation, _) = seen {
            self.release(*generation);
        }
    }
}
