//! Making a stream stand still, and finding out whether it does.

use super::Engine;
use crate::config::Level;
use crate::driver::{Clock, Driver, Observer, SliceError};
use crate::ids::{Code, Kind, QueueId};
use crate::outcome::Error;
use crate::queue::Queue;
use crate::state::{Move, State};

/// How long after a store the GPU has surely seen it and said so.
const SETTLED_NS: u64 = 20_000;
impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Puts the highest level in force that can be had; the one that is.
    pub(super) fn stop(&self, queue: &Queue, epoch: u64, asked: Level) -> Result<Level, Error> {
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
}
