//! The engine: all queues of a process.
//!
//! # What keeps handles alive
//! A driver crashes at the handle of a destroyed object. For a call that the program makes, the program keeps the objects alive. The
//! engine also uses objects by itself: on the worker, on a scheduler's thread, or during a call about another stream. Each such use is
//! protected by one of these:
//!
//! * *submitting*: an operation of the queue is on its way (`QueueState::submitting`). The queue is not drained, so
//!   `destroy_if_finished` leaves the stream alone.
//! * *driver use*: `QueueState::driver_uses` is counted up under the table's lock (`QueueTable::begin_driver_use`) and down by
//!   `end_driver_use`. `destroy_if_finished` leaves the stream alone.
//! * *pin*: a wait or a call still uses a generation, so its event is neither destroyed nor recorded again.
//! * *table*: only while the table is locked, and only for streams that are not finished (`QueueState::is_finished`): no driver call.
//!
//! `begin_context_end` waits until the context has no submitting queue and no driver use, and until no *event use*
//! (`EndingContexts::event_uses`) exists anywhere, as an event does not tell its context. From then on, until `finish_context_end` or
//! `cancel_context_end`, `begin_driver_use`, `QueueTable::select_next` and `destroy_if_finished` refuse.
//!
//! | call | made by | of | protected by |
//! |---|---|---|---|
//! | `submit`, `record`, `place`, `create_event` | `submit_entry` | the queue being dispatched | submitting |
//! | `wait` | `submit_entry` | the queue, and any context's event | submitting; pin and event use |
//! | the same, `is_capturing`, `query_stream`, `synchronize_stream` | the program's thread, in its call | its stream, its event | the program; pin |
//! | `query_event`, `synchronize_event`, `elapsed_ns` | the program's thread, in its call | its event, or the pooled one | the program; pin |
//! | `record`, `query_event`, `elapsed_ns` of marks | `reserve_in_flight`, `submitted` | the calling program's stream | the program |
//! | | `dispatch_selected` where a bound is reached, `check_idle` | any stream | driver use |
//! | | `submit_entry` | the queue being dispatched | submitting |
//! | `is_capturing` | `refresh_captures`, `check_idle` | any stream | driver use |
//! | `is_capturing`, `create_event`, `record`, `query_event`, `destroy_event` of a fence | `check_stopped` | the preempted stream | driver use |
//! | `destroy_event` of a fence | `end_driver_use` | any stream | the last driver use |
//! | `ChannelGroups::disable`, `ChannelGroups::enable` | `apply_group_control` | any stream | driver use |
//! | `is_hung` | `preempt` | the stream's context | driver use |
//! | `StreamGates::store_word`, `StreamGates::progress` | `place_gate` | the queue being dispatched, or the program's | submitting; the program |
//! | | `close_gates`, `open_needed_gates`, `open_gates`, `resume` | any stream | table |
//! | `StreamGates::progress` | `check_stopped` | the preempted stream | driver use |
//! | `destroy_stream`, `destroy_event` of its marks | `destroy_if_finished` | a finished stream | a driver use of its own; there is no other |
//! | `destroy_event` | `destroy_postponed` | an unused event | event use |
//! | `destroy_graph` | `submit_entry` | a graph behind the last command that uses it | submitting |
//! | the calls given to `with_stream` | the adapter | any stream | driver use |
//!
//! The engine does not know the context of an event that was recorded before the engine existed. If a wait for such an event is still
//! pending when that context ends, the wait is made all the same.

mod capture;
mod channel_group;
mod destroy;
mod dispatch;
mod enable;
mod event;
mod module_load;
mod preempt;
mod stop;
mod stream_gates;
mod submit;
mod timers;
mod wait;

use std::sync::Arc;

use crate::driver::{Clock, Driver, Observer};
use crate::events::Events;
use crate::ids::{QueueId, Stream};
use crate::queue::Queue;
use crate::queue_table::QueueTable;
use crate::stream_state::StreamState;
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, lock, wait};

pub use dispatch::NextDispatch;
pub use preempt::Request;

/// Queues and events of a process, over a driver and a clock.
///
/// Locks are taken in the order queue table, events, in-flight window. No lock is held during a driver call.
pub struct Engine<D, C, O> {
    driver: D,
    clock: C,
    observer: O,
    table: Mutex<QueueTable>,
    changed: Condvar,
    events: Mutex<Events>,
    abandoned: AtomicBool,
}

impl<D, C, O> std::fmt::Debug for Engine<D, C, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl<D: Driver, C: Clock, O: Observer> Engine<D, C, O> {
    /// An engine without queues.
    pub fn new(driver: D, clock: C, observer: O) -> Self {
        Self {
            driver,
            clock,
            observer,
            table: Mutex::new(QueueTable::default()),
            changed: Condvar::new(),
            events: Mutex::new(Events::default()),
            abandoned: AtomicBool::new(false),
        }
    }

    /// The queue of a stream. A stream whose preemption is not enabled has one too: others may have to wait for it.
    pub fn queue(&self, stream: Stream) -> Arc<Queue> {
        let (queue, is_new) = {
            let mut table = self.lock_table();
            let is_new = !table.contains(stream);
            (table.queue(stream), is_new)
        };
        if is_new && stream.blocking && !stream.is_legacy() {
            // The new stream runs, so gates must not hold up what the legacy default stream waits for.
            self.open_needed_gates();
        }
        queue
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The state of a queue, as far as it is known without a driver call.
    pub fn state(&self, queue: &Queue) -> Option<StreamState> {
        self.lock_table().queue_state(queue.id()).map(|queue_state| queue_state.state)
    }

    /// Whether the stream's handle still refers to this queue. Once the driver is about to destroy the stream, it may
    /// give the handle to another one.
    pub fn is_handle_current(&self, queue: &Queue) -> bool {
        self.lock_table().maps_handle_to(queue)
    }

    /// Operations in a queue's host queue.
    pub fn pending_commands(&self, queue: &Queue) -> usize {
        self.lock_table()
            .queue_state(queue.id())
            .map_or(0, |queue_state| queue_state.pending.len() + usize::from(queue_state.submitting))
    }

    /// Number of queues.
    pub fn queue_count(&self) -> usize {
        self.lock_table().queue_states().count()
    }

    /// Number of event records that are still in use.
    pub fn generation_count(&self) -> usize {
        lock(&self.events).generation_count()
    }

    /// Threads that wait in the engine for a preempted stream, or for room in a host queue.
    pub fn blocked_threads(&self) -> usize {
        self.lock_table().waiters.count()
    }

    /// Makes every call go straight to the driver from here on. For the child of a fork: the driver is unusable
    /// there, and threads that no longer exist may hold locks. Pending commands are dropped with the engine's memory.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    pub(crate) fn lock_table(&self) -> MutexGuard<'_, QueueTable> {
        lock(&self.table)
    }

    /// Wakes all waiting threads; each checks its condition again.
    pub(crate) fn notify_waiters(&self, table: &QueueTable) {
        if table.waiters.count() > 0 {
            self.changed.notify_all();
        }
    }

    /// Wakes waiting threads if one waits for the operation that a queue has just submitted.
    pub(crate) fn notify_submitted(&self, table: &QueueTable, id: QueueId) {
        if table.is_awaited(id) {
            self.changed.notify_all();
        }
    }

    /// Waits until something has changed. With `position`, submitted operations count only if the queue has submitted
    /// up to it.
    pub(crate) fn await_change<'a>(
        &self,
        mut table: MutexGuard<'a, QueueTable>,
        position: Option<(QueueId, u64)>,
    ) -> MutexGuard<'a, QueueTable> {
        table.waiters.enter(position);
        let mut table = wait(&self.changed, table, None);
        table.waiters.leave(position);
        table
    }

    /// Waits until the driver has everything that queue `id` accepted before `position`.
    pub(crate) fn await_submitted(&self, id: QueueId, position: u64) {
        let mut table = self.lock_table();
        while !self.is_abandoned() && !table.has_submitted(id, position) {
            table = self.await_change(table, Some((id, position)));
        }
    }

    /// Runs the engine's own driver calls in the mode that breaks no capture of the program.
    pub(crate) fn with_relaxed_capture<R>(&self, calls: impl FnOnce() -> R) -> R {
        let before = self.driver.exchange_capture_relaxed(true);
        let result = calls();
        self.driver.exchange_capture_relaxed(before);
        result
    }
}
