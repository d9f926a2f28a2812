//! Preempting a stream.

use super::Engine;
use crate::config::Level;
use crate::driver::{Clock, Driver, Observer};
use crate::outcome::{Achieved, Error};
use crate::queue::Queue;
use crate::state::{Move, State};

/// How to preempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// At most this level, and at most the queue's own; `None` for that.
    pub level: Option<Level>,
    /// Whether to return only when the stream has stopped.
    pub sync: bool,
    /// How long to wait for that.
    pub timeout_ns: u64,
    /// How long the preemption lasts if nobody renews it; `None` for ever.
    pub lease_ns: Option<u64>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            level: None,
            sync: false,
            timeout_ns: 1_000_000_000,
            lease_ns: None,
        }
    }
}

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

    /// The state's part: nobody new is let through.
    fn hold(&self, queue: &Queue, request: Request, now: u64) -> Result<(u64, State, Level), Error> {
        let mut book = self.book();
        let ends = book.endings.is_ending(queue.stream().context);
        let lane = book.lane_mut(queue.id()).ok_or(Error::InvalidStream)?;
        if lane.closing || ends {
            return Err(Error::Closing);
        }
        let config = lane.config.ok_or(Error::NotEnabled)?;
        let (before, level) = (lane.state, request.level.unwrap_or(config.level).min(config.level));
        if let Some(next) = lane.state.after(Move::Preempt) {
            lane.state = next;
            lane.epoch += 1;
            lane.released = 0;
            lane.hold.since_ns = now;
        }
        let lease = request.lease_ns.map(|lease| now.saturating_add(lease));
        let outage = config.outage_ns.map(|outage| lane.hold.since_ns.saturating_add(outage));
        lane.hold.until_ns = lease.into_iter().chain(outage).min();
        let ends = lane.hold.until_ns.is_some();
        let epoch = lane.epoch;
        if book.yields(queue.id())
            && let (Some(gates), Some(lane)) = (self.driver.gate(), book.lane_mut(queue.id()))
        {
            lane.open_gates(gates);
        }
        book.settle(queue.id());
        drop(book);
        if ends {
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
        if level >= Level::Device && queue.is_gated() && !queue.stream().is_legacy() {
            // At once: a thread may be held up in the driver, and what it submits comes behind a gate that is shut.
            self.shut_gates(queue, epoch)?;
        }
        self.until(deadline, || {
            let book = self.book();
            let lane = book.lane(queue.id()).filter(|lane| lane.epoch == epoch).ok_or(Error::InvalidState)?;
            Ok(!lane.busy && !queue.door.is_busy())
        })?;
        let level = self.stop(queue, epoch, level)?;
        let stopped = if sync {
            self.until(deadline, || self.has_stopped(queue, epoch))?;
            true
        } else {
            self.has_stopped(queue, epoch)?
        };
        // It may have yielded meanwhile.
        let book = self.book();
        let lane = book.lane(queue.id()).filter(|lane| lane.epoch == epoch);
        Ok(lane.map_or((level, stopped), |lane| {
            (lane.hold.level.unwrap_or(level), stopped && lane.state == State::Preempted)
        }))
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
