//! Letting a stream run again.

use super::Engine;
use crate::driver::{Clock, Driver, Observer};
use crate::outcome::Error;
use crate::queue::Queue;
use crate::state::{Move, State};

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Lets a stream run again. A preemption that is still being carried out is given up: the last call wins.
    pub fn restore(&self, queue: &Queue) -> Result<(), Error> {
        {
            let book = self.book();
            let lane = book.lane(queue.id()).ok_or(Error::InvalidStream)?;
            lane.config.ok_or(Error::NotEnabled)?;
        }
        self.resume(queue, None);
        Ok(())
    }

    /// Lets all streams run again: the process is about to end.
    pub fn restore_all(&self) {
        let queues: Vec<_> = self.book().lanes().map(|(_, lane)| lane.queue.clone()).collect();
        queues.iter().for_each(|queue| self.resume(queue, None));
    }

    /// Whoever preempted the queue is still there.
    pub fn renew(&self, queue: &Queue, lease_ns: u64) -> Result<(), Error> {
        let until = self.clock.now_ns().saturating_add(lease_ns);
        let mut book = self.book();
        let lane = book.lane_mut(queue.id()).ok_or(Error::InvalidStream)?;
        if lane.state.is_held() {
            lane.hold.until_ns = Some(until);
        }
        Ok(())
    }

    /// A preemption that failed leaves the queue as it was.
    pub(super) fn roll_back(&self, queue: &Queue, epoch: u64, before: State) {
        if !before.is_held() {
            self.resume(queue, Some(epoch));
        }
    }

    /// Opens gates and slices, then the door, unless another call came between; `only` if the queue is still in this epoch. A
    /// `breath` is taken by a queue that is preempted again afterwards.
    pub(super) fn resume(&self, queue: &Queue, only: Option<u64>) {
        let epoch = {
            let mut book = self.book();
            let Some(lane) = book.lane_mut(queue.id()) else { return };
            if only.is_some_and(|only| only != lane.epoch) {
                return;
            }
            let Some(next) = lane.state.after(Move::Restore) else { return };
            lane.state = next;
            lane.epoch += 1;
            lane.sliced.wanted = false;
            let hold = std::mem::take(&mut lane.hold);
            let epoch = lane.epoch;
            let gates = self.driver.gate().filter(|_| queue.is_gated());
            // Before it goes on: what it does then is measured.
            queue.flight.interrupted(gates.map_or(0, |gates| gates.progress(queue.stream()).arrived));
            if let Some(gates) = gates {
                queue.flight.tickets(|tickets| {
                    tickets.open();
                    gates.store(queue.stream(), tickets.word());
                });
            }
            if let Some(lane) = book.lane_mut(queue.id()) {
                // Somebody may be asking the driver about it, and nobody may end its context meanwhile.
                lane.stale.extend(hold.fence);
                lane.looking += 1;
            }
            epoch
        };
        self.looked(queue);
        self.unslice(queue);
        let mut book = self.book();
        if let Some(lane) = book.lane_mut(queue.id()).filter(|lane| lane.epoch == epoch) {
            lane.state = lane.state.after(Move::Opened).unwrap_or(lane.state);
        }
        book.settle(queue.id());
        self.announce(&book);
        drop(book);
        self.open_needed();
        self.observer.wake();
        self.reap(queue);
    }
}
