//! Preempting a stream.

use super::Engine;
use crate::config::Level;
use crate::driver::{Clock, Driver, Observer, SliceError};
use crate::ids::{Code, Kind, QueueId};
use crate::outcome::{Achieved, Error};
use crate::queue::Queue;
use crate::state::{Move, State};

/// What happens to a preemption that took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnTimeout {
    /// It stays; the stream stops when it stops.
    #[default]
    KeepPending,
    /// The stream runs as before.
    RollBack,
}

/// How to preempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// At most this level, and at most the queue's own; `None` for that.
    pub level: Option<Level>,
    /// Whether to return only when the stream has stopped.
    pub sync: bool,
    /// How long to wait for that.
    pub timeout_ns: u64,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// How long the preemption lasts if nobody renews it; `None` for ever.
    pub lease_ns: Option<u64>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            level: None,
            sync: false,
            timeout_ns: 1_000_000_000,
            on_timeout: OnTimeout::KeepPending,
            lease_ns: None,
        }
    }
}

/// How long after a store the GPU has surely seen it and said so.
const SETTLED_NS: u64 = 20_000;
/// How long a wait spins before it sleeps.
const SPIN_NS: u64 = 20_000;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Stops a stream. From its return on nothing more of it reaches the driver until it is restored, but for what a running
    /// queue waits for.
    pub fn preempt(&self, queue: &Queue, request: Request) -> Result<Achieved, Error> {
        let begun = self.clock.now_ns();
        let deadline = begun.saturating_add(request.timeout_ns);
        let (epoch, before, level) = self.hold(queue, request, begun)?;
        let result = self.carry_out(queue, epoch, level, request.sync, deadline);
        match result {
            Ok((level, stopped)) => {
                Ok(Achieved { level, took_ns: self.clock.now_ns().saturating_sub(begun), stopped })
            }
            Err(Error::Timeout { .. }) => {
                if self.driver.is_hung(queue.stream().context) {
                    self.roll_back(queue, epoch, before);
                    return Err(Error::GpuHung);
                }
                let pending = request.on_timeout == OnTimeout::KeepPending;
                if !pending {
                    self.roll_back(queue, epoch, before);
                }
                Err(Error::Timeout { pending })
            }
            Err(error) => {
                self.roll_back(queue, epoch, before);
                Err(error)
            }
        }
    }

    /// The state's part: nobody new is let through.
    fn hold(&self, queue: &Queue, request: Request, now: u64) -> Result<(u64, State, Level), Error> {
        let mut book = self.book();
        let lane = book.lane_mut(queue.id()).ok_or(Error::InvalidStream)?;
        if lane.closing {
            return Err(Error::Closing);
        }
        let config = lane.config.ok_or(Error::NotEnabled)?;
        let (before, level) = (lane.state, request.level.unwrap_or(config.level).min(config.level));
        if let Some(next) = lane.state.after(Move::Preempt).filter(|_| !lane.hold.breath) {
            lane.state = next;
            lane.epoch += 1;
            lane.released = 0;
            lane.share.hold(now, config.window_ns);
            lane.hold.since_ns = now;
        }
        lane.hold.asked = Some(level);
        let lease = request.lease_ns.map(|lease| now.saturating_add(lease));
        let outage = config.outage_ns.map(|outage| lane.hold.since_ns.saturating_add(outage));
        lane.hold.until_ns = lease.into_iter().chain(outage).min();
        let ends = lane.hold.until_ns.is_some();
        let epoch = lane.epoch;
        book.settle(queue.id());
        drop(book);
        if ends || config.minimum_share > 0 {
            self.observer.wake();
        }
        Ok((epoch, before, level))
    }

    fn carry_out(
        &self,
        queue: &Queue,
        epoch: u64,
        level: Level,
        sync: bool,
        deadline: u64,
    ) -> Result<(Level, bool), Error> {
        if self.book().lane(queue.id()).is_some_and(|lane| lane.hold.breath) {
            // It is preempted already and runs for its minimum; the rest follows by itself.
            return Ok((level, false));
        }
        self.until(deadline, || {
            let book = self.book();
            let lane = book.lane(queue.id()).filter(|lane| lane.epoch == epoch).ok_or(Error::InvalidState)?;
            Ok(!lane.busy && !queue.door.is_busy())
        })?;
        let level = self.stop(queue, epoch, level)?;
        if !sync {
            return Ok((level, self.has_stopped(queue, epoch)?));
        }
        self.until(deadline, || self.has_stopped(queue, epoch))?;
        Ok((level, true))
    }

    /// Puts the highest level in force that can be had; the one that is.
    fn stop(&self, queue: &Queue, epoch: u64, asked: Level) -> Result<Level, Error> {
        let held = self.in_force(queue.id(), epoch)?;
        if let Some(level) = held.filter(|level| *level >= asked) {
            return Ok(level);
        }
        // All blocking streams wait for the legacy one on the GPU: it stands still only where they do, at the driver's door.
        let asked = if queue.stream().kind == Kind::Legacy { Level::Host } else { asked };
        let (mut level, mut needed) = (Level::Host, false);
        if asked >= Level::Device && queue.is_gated() {
            needed = self.shut_gates(queue, epoch)?;
            level = Level::Device;
        }
        if asked == Level::Full && !needed {
            match self.slice(queue, epoch) {
                Ok(()) => level = Level::Full,
                Err(SliceError::Unsupported(_)) => {}
                Err(SliceError::Timeout) => return Err(Error::Timeout { pending: false }),
                Err(SliceError::ContextSaveFailed) => return Err(Error::ContextSaveFailed),
                Err(SliceError::InsufficientMemory) => return Err(Error::InsufficientMemory),
                Err(SliceError::GpuHung) => return Err(Error::GpuHung),
            }
        }
        // Recorded into a capture it would change the program's graph; nothing of a capturing stream is running anyway.
        let fence = (level != Level::Full && held.is_none() && !self.driver.is_capturing(queue.stream()))
            .then(|| {
                let event = self.driver.create_event(queue.stream().context, 0)?;
                self.driver.record(queue.stream(), event).map(|()| event)
            })
            .transpose()
            .unwrap_or(None);
        self.legacy_needs(queue);
        let mut book = self.book();
        let lane = book.lane_mut(queue.id()).filter(|lane| lane.epoch == epoch);
        let stale = match lane {
            Some(lane) => {
                lane.hold.level = lane.hold.level.max(Some(level));
                if fence.is_some() { std::mem::replace(&mut lane.hold.fence, fence) } else { None }
            }
            None => fence,
        };
        drop(book);
        stale.map(|event| self.driver.destroy_event(event)).transpose()?;
        self.in_force(queue.id(), epoch)?.ok_or(Error::InvalidState)
    }

    fn in_force(&self, id: QueueId, epoch: u64) -> Result<Option<Level>, Error> {
        let book = self.book();
        let lane = book.lane(id).filter(|lane| lane.epoch == epoch).ok_or(Error::InvalidState)?;
        Ok(lane.hold.level)
    }

    /// Whether the stream stands still; if so the queue is preempted.
    pub(super) fn has_stopped(&self, queue: &Queue, epoch: u64) -> Result<bool, Error> {
        let (fence, level, seen) = {
            let book = self.book();
            let lane = book.lane(queue.id()).filter(|lane| lane.epoch == epoch).ok_or(Error::InvalidState)?;
            match lane.state {
                State::Preempting => (lane.hold.fence, lane.hold.level, lane.hold.seen),
                state => return Ok(state == State::Preempted),
            }
        };
        let now = self.clock.now_ns();
        let progress = self.driver.gate().filter(|_| level == Some(Level::Device));
        let progress = progress.map(|gates| gates.progress(queue.stream()));
        let stands = progress.is_some_and(|progress| {
            progress.arrived != progress.passed
                && seen.is_some_and(|(before, since)| before == progress && now >= since + SETTLED_NS)
        });
        let done =
            fence.is_none_or(|fence| self.relaxed(|| self.driver.query_event(fence)) != Err(Code::NOT_READY));
        let mut book = self.book();
        let lane = book.lane_mut(queue.id()).filter(|lane| lane.epoch == epoch).ok_or(Error::InvalidState)?;
        if let Some(progress) = progress.filter(|progress| seen.is_none_or(|(before, _)| before != *progress))
        {
            lane.hold.seen = Some((progress, now));
        }
        if !(stands || done) {
            return Ok(false);
        }
        lane.state = lane.state.after(Move::Stopped).unwrap_or(lane.state);
        Ok(true)
    }

    /// Waits, first spinning, until `done` or the deadline.
    pub(super) fn until(
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
