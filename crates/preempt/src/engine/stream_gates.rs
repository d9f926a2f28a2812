//! Closing and opening stream gates. Gates of a preempted stream close, but stay open as far as a queue that is not
//! preempted waits for the work behind them.

use std::collections::BTreeSet;
use std::sync::atomic::{Ordering, fence};

use super::Engine;
use crate::driver::{Clock, Driver, Observer, StreamGates};
use crate::events::GatePosition;
use crate::gate_sequence::GateSequence;
use crate::ids::QueueId;
use crate::outcome::Error;
use crate::queue::Queue;
use crate::queue_table::{QueueState, QueueTable};
use crate::stream_state::StreamState;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Puts a gate in front of the next command. If the driver refuses it, the command runs without one, and the
    /// queue has level *host*.
    pub(super) fn place_gate(&self, queue: &Queue, gate: Option<u32>) {
        if let (Some(number), Some(gates)) = (gate, self.driver.stream_gates()) {
            queue.in_flight.with_gate_sequence(|sequence| gates.store_word(queue.stream(), sequence.word()));
            let taken = gates.place(queue.stream(), number).is_ok();
            queue.in_flight.with_gate_sequence(|sequence| sequence.gate_submitted(number, taken));
        }
    }

    /// Closes the stream's gates, except for what others need. Returns `true` if others may need more. Gates stay
    /// open while the stream yields.
    pub(super) fn close_gates(&self, queue: &Queue, epoch: u64) -> Result<bool, Error> {
        let Some(gates) = self.driver.stream_gates() else { return Ok(false) };
        let mut table = self.lock_table();
        table.in_epoch(queue.id(), epoch)?;
        let yields = table.is_yielding(queue.id());
        queue.in_flight.with_gate_sequence(|sequence| {
            // Closed only once: closing again behind the current position would let the stream go on to the next
            // gate.
            if !sequence.is_closed() && !yields {
                close_behind(queue, sequence, gates);
            }
        });
        Ok(open_needed_gates(&table, gates).contains(&queue.id()))
    }

    /// Queue `waiter` waits on the GPU for something behind a gate, which therefore stays open.
    pub(super) fn add_gate_need(&self, waiter: QueueId, behind: &GatePosition) {
        let shut = behind.queue.in_flight.with_gate_sequence(|sequence| {
            sequence.add_need(waiter, behind.gate);
            sequence.is_closed()
        });
        if shut {
            self.open_needed_gates();
        }
    }

    /// Lets the work that preempted queues have in the driver go on as far as others need it, by gates and by
    /// enabling channel groups.
    pub(super) fn open_needed_gates(&self) {
        let held = {
            let table = self.lock_table();
            let needed = self.driver.stream_gates().map(|gates| open_needed_gates(&table, gates));
            table.queues(|queue_state| {
                let is_needed = match &needed {
                    Some(needed) => needed.contains(&queue_state.id()),
                    None => queue_state.released_below > 0,
                };
                queue_state.group_control.disable_wanted && is_needed
            })
        };
        held.iter().for_each(|queue| self.give_up_group(queue));
    }

    /// Notes that a command of the legacy default stream, including the engine's own marks, waits on the GPU for all
    /// blocking streams.
    pub(super) fn add_legacy_needs(&self, legacy: &Queue) {
        if !legacy.stream().is_legacy() {
            return;
        }
        let gated = self.lock_table().queues(|queue_state| {
            queue_state.queue.is_gated() && queue_state.stream().is_ordered_with(legacy.stream())
        });
        for queue in gated {
            let gate = queue.in_flight.with_gate_sequence(|sequence| sequence.placed());
            self.add_gate_need(legacy.id(), &GatePosition { queue, gate });
        }
    }
}

/// Closes the gates behind the one that the GPU has reached. The GPU may just have read the word there, so whether it
/// passes that gate cannot be known. It is let pass; then the position is certain.
fn close_behind(queue: &Queue, sequence: &mut GateSequence, gates: &dyn StreamGates) {
    let mut arrived = gates.progress(queue.stream()).arrived;
    loop {
        sequence.close_behind(arrived);
        gates.store_word(queue.stream(), sequence.word());
        // The GPU writes its position before it reads the word. If the position is unchanged, the GPU will read what
        // was stored.
        fence(Ordering::SeqCst);
        let now = gates.progress(queue.stream()).arrived;
        if now == arrived {
            break;
        }
        arrived = now;
    }
}

/// Opens closed gates as far as needed. Returns the queues whose waits count.
///
/// A queue's waits count if it runs, if it yields to a call that waits for its context, if a thread waits for its
/// host queue, or if a queue whose waits count waits for its work on the GPU. Those of the legacy default stream
/// count if a blocking stream of its context runs: any command of it that waits, including the fence by which the
/// engine learns that it has stopped, blocks all of those.
fn open_needed_gates(table: &QueueTable, gates: &dyn StreamGates) -> BTreeSet<QueueId> {
    let counts = table.queue_states().filter(|queue_state| {
        queue_state.state == StreamState::Running
            || queue_state.released_below > 0
            || table.blocks_running_streams(queue_state.stream())
            || table.is_yielding(queue_state.id())
    });
    let mut counted: BTreeSet<_> = counts.map(QueueState::id).collect();
    // Gates of a finished stream are open.
    let gated: Vec<_> = table
        .queue_states()
        .filter(|queue_state| queue_state.queue.is_gated() && !queue_state.is_finished())
        .collect();
    loop {
        let before = counted.len();
        for queue_state in &gated {
            let arrived = gates.progress(queue_state.stream()).arrived;
            if queue_state.queue.in_flight.with_gate_sequence(|sequence| {
                sequence.is_needed(arrived, |waiter| counted.contains(&waiter))
            }) {
                counted.insert(queue_state.id());
            }
        }
        if counted.len() == before {
            break;
        }
    }
    for queue_state in &gated {
        queue_state.queue.in_flight.with_gate_sequence(|sequence| {
            if queue_state.released_below > 0 {
                sequence.pass_placed();
            }
            sequence.pass_needed(|waiter| counted.contains(&waiter));
            gates.store_word(queue_state.stream(), sequence.word());
        });
    }
    // A running queue is not held up by its own gates.
    counted.retain(|id| {
        table.queue_state(*id).is_some_and(|queue_state| queue_state.state != StreamState::Running)
    });
    counted
}
