//! The level full: somebody else's controls, one at a time for each queue.

use super::Engine;
use crate::book::Sliced;
use crate::config::Level;
use crate::driver::{Clock, Driver, Observer, SliceError};
use crate::ids::Context;
use crate::queue::Queue;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Takes the GPU from the stream, unless the preemption of this epoch has been given up.
    pub(super) fn slice(&self, queue: &Queue, epoch: u64) -> Result<(), SliceError> {
        if self.driver.slices().is_none() {
            return Err(SliceError::Unsupported("nobody works slices here"));
        }
        {
            let mut book = self.book();
            if book.yields(queue.id()) {
                return Err(SliceError::Unsupported("a call waits for the whole context"));
            }
            let Some(lane) = book.lane_mut(queue.id()).filter(|lane| lane.epoch == epoch) else {
                return Ok(());
            };
            lane.sliced.wanted = true;
        }
        self.work_slices(queue)
    }

    /// Gives the GPU back, if it is or is being taken.
    pub(super) fn unslice(&self, queue: &Queue) {
        let idle = self.book().lane(queue.id()).is_none_or(|lane| !lane.sliced.held && !lane.sliced.busy);
        if !idle {
            // What fails is a hold, and none is wanted.
            let _ = self.work_slices(queue);
        }
    }

    /// Somebody needs the GPU in a context that streams were taken off for: all of them but `except` are held by gates from here
    /// on, or the door alone.
    pub fn yield_slices(&self, context: Context, except: Option<&Queue>) {
        let held: Vec<_> = {
            let book = self.book();
            let lanes = book.lanes().filter(|(id, lane)| {
                lane.sliced.wanted
                    && lane.queue.stream().context == context
                    && except.is_none_or(|except| except.id() != *id)
            });
            lanes.map(|(_, lane)| lane.queue.clone()).collect()
        };
        held.iter().for_each(|queue| self.give_up_slices(queue));
    }

    /// Somebody who runs waits for the stream: from here on gates hold it, or the door alone.
    pub(super) fn give_up_slices(&self, queue: &Queue) {
        {
            let mut book = self.book();
            let Some(lane) = book.lane_mut(queue.id()).filter(|lane| lane.sliced.wanted) else { return };
            lane.sliced.wanted = false;
            let level = if queue.is_gated() { Level::Device } else { Level::Host };
            lane.hold.level = lane.hold.level.map(|held| held.min(level));
        }
        self.unslice(queue);
    }

    /// Makes what is into what is wanted. Only one thread is at it; it goes on until both agree, so nobody has to wait for it
    /// who wants the GPU given back. For the stream it is a look from beginning to end.
    fn work_slices(&self, queue: &Queue) -> Result<(), SliceError> {
        let Some(slices) = self.driver.slices() else { return Ok(()) };
        if !self.begin_slices(queue) {
            return Ok(());
        }
        let result = loop {
            let take = {
                let mut book = self.book();
                // It stays for as long as it is looked at.
                let Some(lane) = book.lane_mut(queue.id()) else { break Ok(()) };
                lane.sliced.busy = lane.sliced.wanted != lane.sliced.held;
                if !lane.sliced.busy {
                    self.announce(&book);
                    break Ok(());
                }
                lane.sliced.wanted
            };
            let result = if take {
                slices.hold(queue.stream())
            } else {
                slices.release(queue.stream());
                Ok(())
            };
            let mut book = self.book();
            let Some(lane) = book.lane_mut(queue.id()) else { break result };
            match result {
                Ok(()) => lane.sliced.held = take,
                Err(error) => {
                    (lane.sliced.wanted, lane.sliced.busy) = (false, false);
                    self.announce(&book);
                    break Err(error);
                }
            }
        };
        self.looked(queue);
        result
    }

    /// Whether there is something to do about slices that is this thread's to do. Waits for who is at it only if the GPU is to be
    /// taken.
    fn begin_slices(&self, queue: &Queue) -> bool {
        let mut book = self.book();
        loop {
            let Some(lane) = book.lane(queue.id()) else { return false };
            let Sliced { wanted, held, busy } = lane.sliced;
            match (busy, wanted) {
                (true, true) => book = self.await_change(book),
                (true, false) => return false,
                (false, _) if wanted == held => return false,
                (false, _) => break,
            }
        }
        let Some(lane) = book.look(queue.id()) else { return false };
        lane.sliced.busy = true;
        true
    }
}
