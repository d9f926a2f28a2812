//! Working the gates: shut for who is preempted, but open as far as somebody who is not waits for what is behind them.

use std::collections::BTreeSet;
use std::sync::atomic::{Ordering, fence};

use super::Engine;
use crate::driver::{Clock, Driver, Observer, StreamGates};
use crate::events::GatePosition;
use crate::gate_sequence::GateSequence;
use crate::ids::QueueId;
use crate::outcome::Error;
use crate::queue::Queue;
use crate::queue_table::QueueTable;
use crate::stream_state::StreamState;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Puts a gate in front of the next command. Without one the command is as free as it was before gates were tried, and the queue has
    /// level host.
    pub(super) fn place_gate(&self, queue: &Queue, gate: Option<u32>) {
        if let (Some(number), Some(gates)) = (gate, self.driver.stream_gates()) {
            queue.in_flight.with_gate_sequence(|sequence| gates.store_word(queue.stream(), sequence.word()));
            let taken = gates.place(queue.stream(), number).is_ok();
            queue.in_flight.with_gate_sequence(|sequence| sequence.gate_submitted(number, taken));
        }
    }

    /// Shuts the stream's gates, but for what others need; whether they may still need something. They stay open while the stream yields.
    pub(super) fn shut_gates(&self, queue: &Queue, epoch: u64) -> Result<bool, Error> {
        let Some(gates) = self.driver.stream_gates() else { return Ok(false) };
        let table = self.lock_table();
        table
            .queue_state(queue.id())
            .filter(|queue_state| queue_state.epoch == epoch)
            .ok_or(Error::InvalidState)?;
        let yields = table.is_yielding(queue.id());
        queue.in_flight.with_gate_sequence(|sequence| {
            // Once only: shut again behind where the stream stands by now they would let it go on to the next one.
            if !sequence.is_shut() && !yields {
                shut_behind(queue, sequence, gates);
            }
        });
        Ok(open_needed_gates(&table, gates).contains(&queue.id()))
    }

    /// `who` waits on the GPU for something behind a gate, which therefore stays open.
    pub(super) fn add_gate_need(&self, waiter: QueueId, behind: &GatePosition) {
        let shut = behind.queue.in_flight.with_gate_sequence(|sequence| {
            sequence.add_need(waiter, behind.gate);
            sequence.is_shut()
        });
        if shut {
            self.open_needed_gates();
        }
    }

    /// What preempted queues have in the driver goes on as far as others need it, by gates and by slices.
    pub(super) fn open_needed_gates(&self) {
        let held: Vec<_> = {
            let table = self.lock_table();
            let needed = self.driver.stream_gates().map(|gates| open_needed_gates(&table, gates));
            let queue_states = table.queue_states().filter(|(id, queue_state)| {
                queue_state.group_control.disable_wanted
                    && needed.as_ref().map_or(queue_state.released_below > 0, |needed| needed.contains(id))
            });
            queue_states.map(|(_, queue_state)| queue_state.queue.clone()).collect()
        };
        held.iter().for_each(|queue| self.give_up_group(queue));
    }

    /// A command of the legacy default stream, the engine's own marks included, waits on the GPU for all blocking streams.
    pub(super) fn add_legacy_needs(&self, legacy: &Queue) {
        if !legacy.stream().is_legacy() {
            return;
        }
        let gated: Vec<_> = {
            let table = self.lock_table();
            let blocking = table
                .queue_states()
                .map(|(_, queue_state)| &queue_state.queue)
                .filter(|queue| queue.is_gated() && queue.stream().is_ordered_with(legacy.stream()));
            blocking.cloned().collect()
        };
        for queue in gated {
            let gate = queue.in_flight.with_gate_sequence(|sequence| sequence.placed());
            self.add_gate_need(legacy.id(), &GatePosition { queue, gate });
        }
    }
}

/// Shuts the gates behind the one that the GPU has come to. It may just have read the word there: whether it passes that one could not
/// be known, so it is let pass, and where it stands is certain.
fn shut_behind(queue: &Queue, sequence: &mut GateSequence, gates: &dyn StreamGates) {
    let mut arrived = gates.progress(queue.stream()).arrived;
    loop {
        sequence.shut_behind(arrived);
        gates.store_word(queue.stream(), sequence.word());
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
fn open_needed_gates(table: &QueueTable, gates: &dyn StreamGates) -> BTreeSet<QueueId> {
    let counts = table.queue_states().filter(|(id, queue_state)| {
        queue_state.state == StreamState::Running
            || queue_state.released_below > 0
            || table.blocks_running_streams(queue_state.queue.stream())
            || table.is_yielding(*id)
    });
    let mut counted: BTreeSet<_> = counts.map(|(id, _)| id).collect();
    // Gates of a stream that is over are open.
    let gated: Vec<_> = table
        .queue_states()
        .filter(|(_, queue_state)| queue_state.queue.is_gated() && !queue_state.is_finished())
        .collect();
    loop {
        let before = counted.len();
        for (id, queue_state) in &gated {
            let arrived = gates.progress(queue_state.queue.stream()).arrived;
            if queue_state.queue.in_flight.with_gate_sequence(|sequence| {
                sequence.is_needed(arrived, |waiter| counted.contains(&waiter))
            }) {
                counted.insert(*id);
            }
        }
        if counted.len() == before {
            break;
        }
    }
    for (_, queue_state) in &gated {
        queue_state.queue.in_flight.with_gate_sequence(|sequence| {
            if queue_state.released_below > 0 {
                sequence.pass_placed();
            }
            sequence.pass_needed(|waiter| counted.contains(&waiter));
            gates.store_word(queue_state.queue.stream(), sequence.word());
        });
    }
    // Whoever runs is not held up by its own gates.
    counted.retain(|id| {
        table.queue_state(*id).is_some_and(|queue_state| queue_state.state != StreamState::Running)
    });
    counted
}
