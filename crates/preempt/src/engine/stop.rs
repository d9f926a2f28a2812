//! Making a stream stand still, and finding out whether it does.

use super::Engine;
use crate::config::Level;
use crate::driver::{Clock, Driver, Observer, SliceError};
use crate::ids::{Code, QueueId};
use crate::outcome::Error;
use crate::queue::Queue;
use crate::state::{Move, State};

/// How long after a store the GPU has surely seen it and said so.
const SETTLED_NS: u64 = 20_000;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Puts the highest level in force that can be had; the one that is.
    pub(super) fn stop(&self, queue: &Queue, epoch: u64, asked: Level) -> Result<Level, Error> {
        if let Some(level) = self.in_force(queue.id(), epoch)?.filter(|level| *level >= asked) {
            return Ok(level);
        }
        // All blocking streams wait for the legacy one on the GPU: it stands still only where they do, at the driver's door.
        let asked = if queue.stream().is_legacy() { Level::Host } else { asked };
        let (mut level, mut needed) = (Level::Host, false);
        if asked >= Level::Device && queue.is_gated() {
            needed = self.shut_gates(queue, epoch)?;
            level = if queue.flight.tickets(|tickets| tickets.is_missing()) {
                Level::Host
            } else {
                Level::Device
            };
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
        let mut book = self.book();
        let lane = book.lane_mut(queue.id()).filter(|lane| lane.epoch == epoch).ok_or(Error::InvalidState)?;
        // It may have yielded meanwhile.
        if level == Level::Full && !lane.sliced.wanted {
            level = Level::Device;
        }
        if level == Level::Device && !queue.flight.tickets(|tickets| tickets.is_shut()) {
            level = Level::Host;
        }
        lane.hold.level = lane.hold.level.max(Some(level));
        if lane.hold.level == Some(Level::Host)
            && let Some(gates) = self.driver.gate()
        {
            // Those that the driver took are not to hold up what is behind none.
            lane.open_gates(gates);
        }
        Ok(lane.hold.level.unwrap_or(level))
    }

    pub(super) fn in_force(&self, id: QueueId, epoch: u64) -> Result<Option<Level>, Error> {
        let book = self.book();
        let lane = book.lane(id).filter(|lane| lane.epoch == epoch).ok_or(Error::InvalidState)?;
        Ok(lane.hold.level)
    }

    /// Whether the stream stands still; if so the queue is preempted.
    pub(super) fn has_stopped(&self, queue: &Queue, epoch: u64) -> Result<bool, Error> {
        let (fence, level, seen) = {
            let mut book = self.book();
            let lane =
                book.lane_mut(queue.id()).filter(|lane| lane.epoch == epoch).ok_or(Error::InvalidState)?;
            match (lane.state, lane.hold.level) {
                (State::Preempting, Some(level)) => {
                    lane.looking += 1;
                    (lane.hold.fence, level, lane.hold.seen)
                }
                (state, _) => return Ok(state == State::Preempted),
            }
        };
        // Asked first: what the driver has heard of by then is in the progress.
        let reached = match fence {
            _ if level == Level::Full => Ok(()),
            Some(fence) => self.relaxed(|| self.driver.query_event(fence)),
            None => self.fence(queue, epoch),
        };
        let now = self.clock.now_ns();
        let gates = self.driver.gate().filter(|_| level == Level::Device);
        let progress = gates.map(|gates| gates.progress(queue.stream()));
        let stands = progress.is_some_and(|progress| {
            progress.arrived != progress.passed
                && queue.flight.tickets(|tickets| tickets.stops_at(progress.arrived))
                && seen.is_some_and(|(before, since)| before == progress && now >= since + SETTLED_NS)
        });
        if level < Level::Full && (reached != Err(Code::NOT_READY) || stands) {
            self.relaxed(|| queue.flight.retire(&self.driver));
        }
        let mut book = self.book();
        let stopped = book.lane_mut(queue.id()).filter(|lane| lane.epoch == epoch).map(|lane| {
            if progress.is_some_and(|progress| seen.is_none_or(|(before, _)| before != progress)) {
                lane.hold.seen = progress.map(|progress| (progress, now));
            }
            // What was found out is of this level; by now it may have yielded.
            let stopped = (reached != Err(Code::NOT_READY) || stands) && lane.hold.level == Some(level);
            if stopped {
                if level < Level::Full {
                    queue.flight.stands(progress.map_or(0, |progress| progress.arrived));
                }
                lane.fail_if_lost(reached);
                lane.state = lane.state.after(Move::Stopped).unwrap_or(lane.state);
            }
            stopped
        });
        drop(book);
        self.looked(queue);
        stopped.ok_or(Error::InvalidState)
    }

    /// A look is over: what was kept for it goes. That is part of the last look, as its context must not end meanwhile.
    pub(super) fn looked(&self, queue: &Queue) {
        loop {
            let stale = {
                let mut book = self.book();
                let Some(lane) = book.lane_mut(queue.id()) else { return };
                if lane.looking > 1 || lane.stale.is_empty() {
                    lane.looking -= 1;
                    break;
                }
                std::mem::take(&mut lane.stale)
            };
            for fence in stale {
                let _ = self.driver.destroy_event(fence);
            }
        }
        self.reap(queue);
    }

    /// Makes calls of the driver's on a stream that another thread may destroy meanwhile, or its context; `None` if it has.
    pub fn with_stream<R>(&self, queue: &Queue, calls: impl FnOnce() -> R) -> Option<R> {
        {
            let mut book = self.book();
            book.lane(queue.id()).filter(|lane| !lane.closing)?;
            book.look(queue.id())?;
        }
        let result = calls();
        self.looked(queue);
        Some(result)
    }

    /// Records an event behind everything that the driver has of the stream, and asks for it.
    ///
    /// Recorded into a capture it would change the program's graph: whether a capturing stream stands still is not known.
    fn fence(&self, queue: &Queue, epoch: u64) -> Result<(), Code> {
        if self.driver.is_capturing(queue.stream()) {
            return Err(Code::NOT_READY);
        }
        let fence = self.driver.create_event(queue.stream().context, 0)?;
        let recorded = self.driver.record(queue.stream(), fence);
        self.legacy_needs(queue);
        let mut book = self.book();
        let lane = book.lane_mut(queue.id()).filter(|lane| lane.epoch == epoch && lane.hold.fence.is_none());
        match lane {
            Some(lane) if recorded.is_ok() => lane.hold.fence = Some(fence),
            _ => {
                drop(book);
                let _ = self.driver.destroy_event(fence);
                return recorded.and(Err(Code::NOT_READY));
            }
        }
        drop(book);
        self.relaxed(|| self.driver.query_event(fence))
    }
}
