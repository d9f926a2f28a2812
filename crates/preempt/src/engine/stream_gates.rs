//! Working the gates: shut for who is preempted, but open as far as somebody who is not waits for what is behind them.

use std::collections::BTreeSet;
use std::sync::atomic::{Ordering, fence};

use super::Engine;
use crate::book::Book;
use crate::driver::{Clock, Driver, Gate, Observer};
use crate::events::Behind;
use crate::ids::QueueId;
use crate::outcome::Error;
use crate::queue::Queue;
use crate::state::State;
use crate::tickets::Tickets;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Puts a gate in front of the next command. Without one the command is as free as it was before gates were tried, and the queue has
    /// level host.
    pub(super) fn place(&self, queue: &Queue, gate: Option<u32>) {
        if let (Some(number), Some(gates)) = (gate, self.driver.gate()) {
            queue.flight.tickets(|tickets| gates.store(queue.stream(), tickets.word()));
            let taken = gates.place(queue.stream(), number).is_ok();
            queue.flight.tickets(|tickets| tickets.answered(number, taken));
        }
    }

    /// Shuts the stream's gates, but for what others need; whether they may still need something. They stay open while the stream yields.
    pub(super) fn shut_gates(&self, queue: &Queue, epoch: u64) -> Result<bool, Error> {
        let Some(gates) = self.driver.gate() else { return Ok(false) };
        let book = self.book();
        book.lane(queue.id()).filter(|lane| lane.epoch == epoch).ok_or(Error::InvalidState)?;
        let yields = book.yields(queue.id());
        queue.flight.tickets(|tickets| {
            // Once only: shut again behind where the stream stands by now they would let it go on to the next one.
            if !tickets.is_shut() && !yields {
                shut_behind(queue, tickets, gates);
            }
        });
        Ok(open_needed(&book, gates).contains(&queue.id()))
    }

    /// `who` waits on the GPU for something behind a gate, which therefore stays open.
    pub(super) fn need(&self, who: QueueId, behind: &Behind) {
        let shut = behind.queue.flight.tickets(|tickets| {
            tickets.need(who, behind.gate);
            tickets.is_shut()
        });
        if shut {
            self.open_needed();
        }
    }

    /// What preempted queues have in the driver goes on as far as others need it, by gates and by slices.
    pub(super) fn open_needed(&self) {
        let held: Vec<_> = {
            let book = self.book();
            let needed = self.driver.gate().map(|gates| open_needed(&book, gates));
            let lanes = book.lanes().filter(|(id, lane)| {
                lane.sliced.wanted && needed.as_ref().map_or(lane.released > 0, |needed| needed.contains(id))
            });
            lanes.map(|(_, lane)| lane.queue.clone()).collect()
        };
        held.iter().for_each(|queue| self.give_up_slices(queue));
    }

    /// A command of the legacy default stream, the engine's own marks included, waits on the GPU for all blocking streams.
    pub(super) fn legacy_needs(&self, legacy: &Queue) {
        if !legacy.stream().is_legacy() {
            return;
        }
        let gated: Vec<_> = {
            let book = self.book();
            let blocking = book.lanes().map(|(_, lane)| &lane.queue).filter(|queue| {
                queue.is_gated() && queue.stream().is_ordered_with(legacy.stream())
            });
            blocking.cloned().collect()
        };
        for queue in gated {
            let gate = queue.flight.tickets(|tickets| tickets.placed());
            self.need(legacy.id(), &Behind { queue, gate });
        }
    }
}

/// Shuts the gates behind the one that the GPU has come to. It may just have read the word there: whether it passes that one could not
/// be known, so it is let pass, and where it stands is certain.
fn shut_behind(queue: &Queue, tickets: &mut Tickets, gates: &dyn Gate) {
    let mut arrived = gates.progress(queue.stream()).arrived;
    loop {
        tickets.shut_behind(arrived);
        gates.store(queue.stream(), tickets.word());
        // The GPU says where it is before it reads the word: if it has not gone on, it will read what was stored.
        fence(Ordering::SeqCst);
        let now = gates.progress(queue.stream()).arrived;
        if now == arrived {
            break;
        }
        arrived = now;
    }
}

/// Opens shut gates as far as needed; the queues whose waits count.
///
/// A queue's waits count if it runs, if it yields to a call that waits for its context, if somebody waits for its host queue, or if a
/// queue whose waits count waits for what it has on the GPU. The legacy default stream's do if a blocking stream of its context runs: a
/// command of it that waits, be it the fence by which the engine learns that it stands, holds up all of those.
fn open_needed(book: &Book, gates: &dyn Gate) -> BTreeSet<QueueId> {
    let counts = book.lanes().filter(|(id, lane)| {
        lane.state == State::Running
            || lane.released > 0
            || book.holds_up_runners(lane.queue.stream())
            || book.yields(*id)
    });
    let mut needy: BTreeSet<_> = counts.map(|(id, _)| id).collect();
    // Gates of a stream that is over are open.
    let gated: Vec<_> = book.lanes().filter(|(_, lane)| lane.queue.is_gated() && !lane.is_over()).collect();
    loop {
        let before = needy.len();
        for (id, lane) in &gated {
            let arrived = gates.progress(lane.queue.stream()).arrived;
            if lane.queue.flight.tickets(|tickets| tickets.is_needed(arrived, |who| needy.contains(&who))) {
                needy.insert(*id);
            }
        }
        if needy.len() == before {
            break;
        }
    }
    for (_, lane) in &gated {
        lane.queue.flight.tickets(|tickets| {
            if lane.released > 0 {
                tickets.pass_placed();
            }
            tickets.pass_needed(|who| needy.contains(&who));
            gates.store(lane.queue.stream(), tickets.word());
        });
    }
    // Whoever runs is not held up by its own gates.
    needy.retain(|id| book.lane(*id).is_some_and(|lane| lane.state != State::Running));
    needy
}
