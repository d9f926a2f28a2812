//! Submission: at once on the caller's thread, or through the host queue.

use super::Engine;
use crate::command::{Command, Deferral, Work};
use crate::driver::{Clock, Driver, Observer};
use crate::events::{GenerationId, RecordPlace};
use crate::ids::{Code, Event, QueueId};
use crate::in_flight::Reservation;
use crate::queue::{Admitted, Queue};
use crate::queue_table::Operation;
use crate::stream_state::StreamState;
use crate::sync::lock;

/// What a call becomes that could not be made at once.
#[derive(Debug)]
pub(super) enum PendingCall {
    Command(Command),
    ByCaller,
    Record(Event),
    Wait(GenerationId, Vec<(QueueId, u64)>),
}

impl PendingCall {
    /// Positions in other queues that a wait has to follow.
    pub(super) fn after(self) -> Vec<(QueueId, u64)> {
        if let Self::Wait(_, after) = self { after } else { Vec::new() }
    }
}

/// Where the call went.
#[derive(Debug)]
pub(super) enum Enqueued {
    /// Into the queue, at this position.
    At(u64),
    /// Not queued: the queue admits it directly by now.
    Bypassed(PendingCall),
}

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Makes the call `now` if its stream runs; otherwise what `later` returns is queued.
    ///
    /// Returns the result for the program: the driver's if the call was made, success if it was queued, or the
    /// deferred error of an earlier command.
    #[inline]
    pub fn submit(
        &self,
        queue: &Queue,
        work: Work,
        now: impl FnOnce() -> Result<(), Code>,
        later: impl FnOnce() -> Result<Deferral, Code>,
    ) -> Result<(), Code> {
        match queue.admission.enter() {
            Some(_admitted) if queue.is_unrestricted() => now(),
            admitted => self.submit_restricted(queue, work, admitted, now, later),
        }
    }

    /// Submits a command that exists already.
    pub fn submit_command(&self, queue: &Queue, command: &Command) -> Result<(), Code> {
        let now = || self.driver.submit(queue.stream(), command);
        self.submit(queue, command.work(), now, || Ok(Deferral::Queue(command.clone())))
    }

    fn submit_restricted<'a>(
        &self,
        queue: &'a Queue,
        work: Work,
        mut admitted: Option<Admitted<'a>>,
        now: impl FnOnce() -> Result<(), Code>,
        later: impl FnOnce() -> Result<Deferral, Code>,
    ) -> Result<(), Code> {
        if self.is_abandoned() || self.driver.is_capturing(queue.stream()) {
            drop(admitted);
            return now();
        }
        let mut later = Some(later);
        let mut ready = None;
        loop {
            let full = admitted.is_some();
            if let Some(_admitted) = admitted.take()
                && let Some(gate) = self.reserve_in_flight(queue, work)
            {
                self.place_gate(queue, gate);
                let result = now();
                self.submitted(queue);
                return result;
            }
            if let Some(later) = later.take() {
                ready = Some(match later()? {
                    Deferral::Queue(command) => PendingCall::Command(command),
                    Deferral::ByCaller => PendingCall::ByCaller,
                });
            }
            let Some(what) = ready.take() else { return Err(Code::INVALID_VALUE) };
            let by_caller = matches!(what, PendingCall::ByCaller);
            match self.enqueue(queue, full, what)? {
                Enqueued::At(position) if by_caller => return self.submit_by_caller(queue, position, now),
                Enqueued::At(_) => return Ok(()),
                Enqueued::Bypassed(what) => ready = Some(what),
            }
            admitted = queue.admission.enter();
        }
    }

    /// Counts an admitted command into the in-flight window; `None` if the bound is reached. The inner value is the
    /// gate to place in front.
    pub(super) fn reserve_in_flight(&self, queue: &Queue, work: Work) -> Option<Option<u32>> {
        if !queue.is_counted() {
            return Some(None);
        }
        if queue.in_flight.is_batch_boundary() {
            self.with_relaxed_capture(|| queue.in_flight.retire(&self.driver));
        }
        let mut reserved = queue.in_flight.reserve(work, true);
        if reserved == Reservation::Full {
            self.with_relaxed_capture(|| {
                self.mark(queue, true);
                queue.in_flight.retire(&self.driver);
            });
            reserved = queue.in_flight.reserve(work, true);
        }
        match reserved {
            Reservation::Granted(gate) => Some(gate),
            Reservation::Full => None,
        }
    }

    /// After a command has reached the driver.
    pub(super) fn submitted(&self, queue: &Queue) {
        if queue.is_counted() && queue.in_flight.is_mark_due() {
            self.with_relaxed_capture(|| self.mark(queue, false));
        }
        self.add_legacy_needs(queue);
        if queue.take_wake_request() {
            self.observer.wake();
        }
    }

    /// Records a mark behind what was submitted, if a batch is complete or `now` is set.
    pub(super) fn mark(&self, queue: &Queue, now: bool) {
        queue.in_flight.mark(&self.driver, queue.stream(), now);
        self.add_legacy_needs(queue);
    }

    /// Queues the call, unless the queue admits it directly by now and the window is not `full`.
    pub(super) fn enqueue(&self, queue: &Queue, full: bool, what: PendingCall) -> Result<Enqueued, Code> {
        let id = queue.id();
        let bytes = if let PendingCall::Command(command) = &what { command.bytes() } else { 0 };
        let mut table = self.lock_table();
        loop {
            let passes = table.admits_directly(id);
            let queue_state = table
                .queue_state_mut(id)
                .filter(|queue_state| !queue_state.closing)
                .ok_or(Code::INVALID_HANDLE)?;
            if let Some(code) = queue_state.take_error() {
                table.update_admission(id);
                return Err(code);
            }
            let position = queue_state.accepted;
            let is_full = queue_state.is_full(bytes);
            let open = |(leader, position): &(QueueId, u64)| !table.has_submitted(*leader, *position);
            let blocked = matches!(&what, PendingCall::Wait(_, after) if after.iter().any(open));
            if passes && !full && !blocked {
                return Ok(Enqueued::Bypassed(what));
            }
            if is_full && !self.is_abandoned() {
                table = self.await_change(table, None);
                continue;
            }
            let (entry, after) = match what {
                PendingCall::Command(command) => (Operation::Command(command), Vec::new()),
                PendingCall::ByCaller => (Operation::ByCaller, Vec::new()),
                PendingCall::Wait(generation, after) => (Operation::Wait(generation), after),
                PendingCall::Record(event) => {
                    let generation =
                        lock(&self.events).begin_record(event, RecordPlace::Queued(id, position));
                    (Operation::Record(generation.ok_or(Code::INVALID_HANDLE)?), Vec::new())
                }
            };
            table.push(id, entry, after);
            let wake =
                table.queue_state(id).is_some_and(|queue_state| queue_state.state == StreamState::Running);
            drop(table);
            if wake {
                self.observer.wake();
            }
            return Ok(Enqueued::At(position));
        }
    }

    /// Makes a call on its caller's thread when its position comes.
    fn submit_by_caller(
        &self,
        queue: &Queue,
        position: u64,
        now: impl FnOnce() -> Result<(), Code>,
    ) -> Result<(), Code> {
        let mut table = self.lock_table();
        while !self.is_abandoned()
            && table
                .queue_state(queue.id())
                .is_some_and(|queue_state| queue_state.admitted_caller != Some(position))
        {
            // The dispatcher announces the position; other submissions do not matter.
            table = self.await_change(table, Some((queue.id(), position + 1)));
        }
        drop(table);
        let result = now();
        self.submitted(queue);
        self.finish_entry(queue, Ok(()));
        self.observer.wake();
        result
    }
}
