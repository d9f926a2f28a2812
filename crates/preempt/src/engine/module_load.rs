//! Calls for which the driver waits until the GPU has done all that a context has been given, as loads of modules are: a stream that
//! stands at a gate would hold them up for as long as it stands.

use super::Engine;
use crate::book::Lane;
use crate::config::Level;
use crate::driver::{Clock, Driver, Gate, Observer};
use crate::ids::Context;
use crate::queue::Queue;
use crate::state::Move;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Whether a stream, while it is held, stands aside for such calls: whoever would restore it may be the one who makes them.
    pub fn set_yields(&self, queue: &Queue, yields: bool) {
        let mut book = self.book();
        let Some(lane) = book.lane_mut(queue.id()) else { return };
        lane.yields = yields;
        let open = book.yields(queue.id());
        if open && let (Some(gates), Some(lane)) = (self.driver.gate(), book.lane_mut(queue.id())) {
            lane.open_gates(gates);
        }
        drop(book);
        if open {
            self.give_up_slices(queue);
            self.open_needed();
            self.observer.wake();
        }
    }

    /// A thread is about to make such a call in a context. Until [`Engine::load_ends`] the door alone holds those of its streams that
    /// yield ([`Engine::set_yields`]): what the driver has of them is done, and so the call comes back.
    pub fn load_begins(&self, context: Context) {
        if self.is_abandoned() {
            return;
        }
        {
            let mut book = self.book();
            book.loads.begin(context);
            let gates = self.driver.gate();
            let lanes = book
                .lanes_mut()
                .map(|(_, lane)| lane)
                .filter(|lane| lane.state.is_held() && lane.yields && lane.queue.stream().context == context);
            if let Some(gates) = gates {
                lanes.for_each(|lane| lane.open_gates(gates));
            }
        }
        self.yield_slices(context, None);
        // What they wait for on the GPU may be behind the gates of others.
        self.open_needed();
        self.observer.wake();
    }

    /// Such a call has come back. Streams that have yielded stay as they are; the next preemption shuts their gates again.
    pub fn load_ends(&self, context: Context) {
        if !self.is_abandoned() {
            self.book().loads.end(context);
        }
    }
}

impl Lane {
    /// Holds the queue by its door alone: what the driver has of it goes on.
    pub(super) fn open_gates(&mut self, gates: &dyn Gate) {
        let (queue, stream) = (&self.queue, self.queue.stream());
        if !queue.flight.tickets(|tickets| tickets.is_shut()) {
            return;
        }
        queue.flight.interrupted(gates.progress(stream).arrived);
        queue.flight.tickets(|tickets| {
            tickets.open();
            gates.store(stream, tickets.word());
        });
        self.hold.level = self.hold.level.map(|level| level.min(Level::Host));
        self.hold.seen = None;
        self.state = self.state.after(Move::Yield).unwrap_or(self.state);
    }
}
