//! Calls for which the driver waits until the GPU has completed all work of a context, such as module loads. A stream
//! that stands at a gate would block them for as long as it stands.

use super::Engine;
use crate::config::PreemptionLevel;
use crate::driver::{Clock, Driver, Observer, StreamGates};
use crate::ids::{Context, QueueId};
use crate::queue_table::{QueueState, QueueTable};
use crate::stream_state::Transition;

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// Opens the gates of a queue that is preempted during such a call. Returns whether it is.
    pub(super) fn open_gates_if_yielding(&self, table: &mut QueueTable, id: QueueId) -> bool {
        let yields = table.is_yielding(id);
        if yields
            && let (Some(gates), Some(queue_state)) = (self.driver.stream_gates(), table.queue_state_mut(id))
        {
            queue_state.open_gates(gates);
        }
        yields
    }

    /// A thread is about to make such a call. Until [`Engine::end_module_load`], the context's preempted streams are
    /// held in the host queue only: the thread that would restore them may be the one that makes the call. The driver
    /// completes what it has of them, and the call returns.
    pub fn begin_module_load(&self, context: Context) {
        if self.is_abandoned() {
            return;
        }
        {
            let mut table = self.lock_table();
            *table.module_loads.entry(context).or_default() += 1;
            let gates = self.driver.stream_gates();
            let queue_states = table.queue_states_mut().filter(|queue_state| {
                queue_state.state.is_under_preemption() && queue_state.stream().context == context
            });
            if let Some(gates) = gates {
                queue_states.for_each(|queue_state| queue_state.open_gates(gates));
            }
        }
        self.enable_groups_of(context, None);
        // What they wait for on the GPU may be behind the gates of others.
        self.open_needed_gates();
        self.observer.wake();
    }

    /// Such a call has returned. Streams that yielded stay as they are; the next preemption closes their gates again.
    pub fn end_module_load(&self, context: Context) {
        if self.is_abandoned() {
            return;
        }
        let mut table = self.lock_table();
        table.module_loads.entry(context).and_modify(|threads| *threads -= 1);
        table.module_loads.retain(|_, threads| *threads > 0);
    }
}

impl QueueState {
    /// Opens the gates: admission alone holds the queue, and what the driver has of it goes on.
    pub(super) fn open_gates(&mut self, gates: &dyn StreamGates) {
        let (queue, stream) = (&self.queue, self.queue.stream());
        if !queue.in_flight.with_gate_sequence(|sequence| sequence.is_closed()) {
            return;
        }
        queue.in_flight.interrupted(gates.progress(stream).arrived);
        queue.in_flight.with_gate_sequence(|sequence| {
            sequence.open();
            gates.store_word(stream, sequence.word());
        });
        self.preemption.level = self.preemption.level.map(|level| level.min(PreemptionLevel::Host));
        self.preemption.seen = None;
        self.apply(Transition::Yield);
    }
}
