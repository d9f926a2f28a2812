//! Submissions: at once on the caller's thread, or into the host queue.

use super::Engine;
use crate::book::What;
use crate::command::{Command, Later, Work};
use crate::door::Inside;
use crate::driver::{Clock, Driver, Observer};
use crate::events::{GenerationId, Place};
use crate::flight::Admit;
use crate::ids::{Code, Event, QueueId};
use crate::queue::Queue;
use crate::state::State;
use crate::sync::lock;

/// What a call that could not pass becomes.
#[derive(Debug)]
pub(super) enum Ready {
    Command(Command),
    Turn,
    Record(Event),
    Wait(GenerationId, Vec<(QueueId, u64)>),
}

impl Ready {
    /// What a wait has to come after.
    pub(super) fn after(self) -> Vec<(QueueId, u64)> {
        if let Self::Wait(_, after) = self { after } else { Vec::new() }
    }
}

/// Where it went.
#[derive(Debug)]
pub(super) enum Queued {
    /// Into the queue, at this position.
    At(u64),
    /// Nowhere: it may pass after all.
    Pass(Ready),
}

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Makes the call `now` if its stream runs; else what it turns into `later` waits in the host queue.
    ///
    /// Returns what the call should return: the driver's own word if it was made, success if it was queued, or the deferred
    /// error of an earlier command.
    #[inline]
    pub fn submit(
        &self,
        queue: &Queue,
        work: Work,
        now: impl FnOnce() -> Result<(), Code>,
        later: impl FnOnce() -> Result<Later, Code>,
    ) -> Result<(), Code> {
        match queue.door.enter() {
            Some(_inside) if queue.is_plain() => now(),
            inside => self.submit_carefully(queue, work, inside, now, later),
        }
    }

    /// Likewise for a command that exists already.
    pub fn command(&self, queue: &Queue, command: &Command) -> Result<(), Code> {
        let now = || self.driver.submit(queue.stream(), command);
        self.submit(queue, command.work(), now, || Ok(Later::Queue(command.clone())))
    }

    /// Makes a call `now` whatever the stream's state, because the program needs its result: an allocation in stream order
    /// (`cuMemAllocAsync`), which may as well happen earlier.
    pub fn submit_at_once<R>(&self, _queue: &Queue, now: impl FnOnce() -> R) -> R {
        now()
    }

    fn submit_carefully<'a>(
        &self,
        queue: &'a Queue,
        work: Work,
        mut inside: Option<Inside<'a>>,
        now: impl FnOnce() -> Result<(), Code>,
        later: impl FnOnce() -> Result<Later, Code>,
    ) -> Result<(), Code> {
        if self.is_abandoned() || self.driver.is_capturing(queue.stream()) {
            drop(inside);
            return now();
        }
        let mut later = Some(later);
        let mut ready = None;
        loop {
            let full = inside.is_some();
            if let Some(_inside) = inside.take()
                && let Some(gate) = self.admit(queue, work)
            {
                self.place(queue, gate);
                let result = now();
                self.submitted(queue);
                return result;
            }
            if let Some(later) = later.take() {
                ready = Some(match later()? {
                    Later::Queue(command) => Ready::Command(command),
                    Later::InPerson => Ready::Turn,
                });
            }
            let Some(what) = ready.take() else { return Err(Code::INVALID_VALUE) };
            let in_person = matches!(what, Ready::Turn);
            match self.enqueue(queue, full, what)? {
                Queued::At(position) if in_person => return self.in_person(queue, position, now),
                Queued::At(_) => return Ok(()),
                Queued::Pass(what) => ready = Some(what),
            }
            inside = queue.door.enter();
        }
    }

    /// Counts a command that passes; `None` if the bound is reached.
    pub(super) fn admit(&self, queue: &Queue, work: Work) -> Option<Option<u32>> {
        if !queue.is_counted() {
            return Some(None);
        }
        if queue.flight.is_between() {
            self.relaxed(|| queue.flight.retire(&self.driver));
        }
        let mut admitted = queue.flight.admit(work, true);
        if admitted == Admit::Full {
            self.relaxed(|| {
                self.mark(queue, true);
                queue.flight.retire(&self.driver);
            });
            admitted = queue.flight.admit(work, true);
        }
        match admitted {
            Admit::Go(gate) => Some(gate),
            Admit::Full => None,
        }
    }

    /// After a command has reached the driver.
    pub(super) fn submitted(&self, queue: &Queue) {
        if queue.is_counted() && queue.flight.is_mark_due() {
            self.relaxed(|| self.mark(queue, false));
        }
        self.legacy_needs(queue);
        if queue.stir() {
            self.observer.wake();
        }
    }

    /// Puts a mark behind what was submitted, if a batch is complete or `now`.
    pub(super) fn mark(&self, queue: &Queue, now: bool) {
        queue.flight.mark(&self.driver, queue.stream(), now);
        self.legacy_needs(queue);
    }

    /// Queues `what`, unless the queue may pass by now (and not `full`, which is why it came here).
    pub(super) fn enqueue(&self, queue: &Queue, full: bool, what: Ready) -> Result<Queued, Code> {
        let id = queue.id();
        let bytes = if let Ready::Command(command) = &what { command.bytes() } else { 0 };
        let mut book = self.book();
        loop {
            let passes = book.passes(id);
            let lane = book.lane_mut(id).filter(|lane| !lane.closing).ok_or(Code::INVALID_HANDLE)?;
            if let Some(code) = lane.tell() {
                book.settle(id);
                return Err(code);
            }
            let position = lane.accepted;
            let is_full = lane.is_full(bytes);
            let open = |(leader, position): &(QueueId, u64)| {
                book.lane(*leader).is_some_and(|lane| lane.submitted < *position)
            };
            let blocked = matches!(&what, Ready::Wait(_, after) if after.iter().any(open));
            if passes && !full && !blocked {
                return Ok(Queued::Pass(what));
            }
            if is_full && !self.is_abandoned() {
                book = self.await_change(book);
                continue;
            }
            let (entry, after) = match what {
                Ready::Command(command) => (What::Command(command), Vec::new()),
                Ready::Turn => (What::Turn, Vec::new()),
                Ready::Wait(generation, after) => (What::Wait(generation), after),
                Ready::Record(event) => {
                    let generation = lock(&self.events).accept(event, Place::Queued(id, position));
                    (What::Record(generation.ok_or(Code::INVALID_HANDLE)?), Vec::new())
                }
            };
            book.push(id, entry, after);
            let wake = book.lane(id).is_some_and(|lane| lane.state == State::Running);
            drop(book);
            if wake {
                self.observer.wake();
            }
            return Ok(Queued::At(position));
        }
    }

    /// Makes a call in its turn, on the thread that called.
    fn in_person(
        &self,
        queue: &Queue,
        position: u64,
        now: impl FnOnce() -> Result<(), Code>,
    ) -> Result<(), Code> {
        let mut book = self.book();
        while !self.is_abandoned() && book.lane(queue.id()).is_some_and(|lane| lane.turn != Some(position)) {
            // Its turn is announced; what is handed over before and after it does not matter.
            book = self.await_position(book, (queue.id(), position + 1));
        }
        drop(book);
        let result = now();
        self.submitted(queue);
        self.finish(queue, Ok(()));
        self.observer.wake();
        result
    }
}
