//! The end of a grant: wait for launches in flight, wait for the GPU, measure, report.

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_comm::HandOffStep;

use super::Device;
use super::state::{Measured, Phase, State};
use crate::lock;
use crate::platform::{Clock, Driver, GrantUsage, Mark, StreamKind, TokenLink};
use crate::streams::UsedStream;

/// How long to wait for a launch in flight. The driver may block it until the GPU has room, and the GPU may wait for a launch that is
/// itself waiting at the launch gate.
const LAUNCH_TIMEOUT_NS: u64 = 10_000_000;

/// How long to sleep between two checks for launches in flight.
const LAUNCH_CHECK_NS: u64 = 5_000;

/// How long to wait for the stores of threads that the system refuses to order. Far longer than a store stays in a processor's buffer.
const REFUSED_ORDER_NS: u64 = 1_000_000;

/// How long to wait for work behind which no event can be recorded yet: as long as the manager waits for the grant after its deadline.
const UNREACHABLE_TIMEOUT_NS: u64 = 2_000_000_000;

/// How long to sleep between two checks for such work. The driver has work of 1 ms or more while commands are queued.
const UNREACHABLE_CHECK_NS: u64 = 200_000;

/// After this time a thread that was about to call the driver's wait for a context has called it, also on a busy machine.
const CONTEXT_DRAIN_BEGINS_NS: u64 = 100_000_000;

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Ends the grant. The phase is `Draining` and the launch gate closed.
    pub(super) fn drain(&self) {
        self.clock.record_step(HandOffStep::DrainBegun);
        self.wait_for_launches();
        self.clock.record_step(HandOffStep::LaunchesEnded);
        self.wait_for_unreachable();
        let draining = lock(&self.drain_lock);
        let (marks, contexts, begin) = self.mark_all();
        self.clock.record_step(HandOffStep::WorkMarked);
        let is_over = || marks.iter().all(|mark| self.driver.is_reached(*mark));
        let waits = !contexts.is_empty() || !self.poll_for(is_over);
        if waits {
            // If the connection is lost meanwhile, no grant shows the manager that there is work.
            self.begin_blocking();
            contexts.iter().for_each(|context| self.driver.drain_context(*context));
            self.end_context_drain();
            marks.iter().for_each(|mark| self.driver.wait(*mark));
        }
        self.clock.record_step(HandOffStep::WorkEnded);
        let now = self.clock.now_ns();
        let gpu = begin.and_then(|begin| {
            let elapsed = marks.iter().filter_map(|mark| self.driver.elapsed_ns(begin.mark, *mark)).max();
            elapsed.map(|elapsed| (begin, elapsed))
        });
        for mark in marks.into_iter().chain(begin.map(|begin| begin.mark)) {
            self.driver.discard(mark);
        }
        drop(draining);
        let mut state = self.lock();
        state.blocked_threads = state.blocked_threads.saturating_sub(usize::from(waits));
        // If the connection was lost in the meantime, the grant has already been settled.
        if state.phase == Phase::Draining {
            self.settle_grant(&mut state, now, gpu);
        }
        self.report_activity(&state, now);
        drop(state);
        self.stop_polling_for_end();
    }

    /// Waits for threads that passed the launch gate before it closed.
    fn wait_for_launches(&self) {
        if self.gate.is_ordered_by_drain() && !self.clock.order_all_threads() {
            // Launches order themselves from now on. Those that did not yet are visible after this time.
            self.gate.set_ordered_by_drain(false);
            self.clock.pause(REFUSED_ORDER_NS);
        }
        self.clock.record_step(HandOffStep::ThreadsOrdered);
        if self.poll_for(|| !self.gate.in_flight()) {
            return;
        }
        let began = self.clock.now_ns();
        while self.gate.in_flight() && self.clock.now_ns().saturating_sub(began) < LAUNCH_TIMEOUT_NS {
            self.clock.pause(LAUNCH_CHECK_NS);
        }
    }

    /// Waits until an event can be recorded behind all work of the grant. No lock is held, because a thread that ends a context needs
    /// them.
    fn wait_for_unreachable(&self) {
        let began = self.clock.now_ns();
        while self.has_unreachable() && self.clock.now_ns().saturating_sub(began) < UNREACHABLE_TIMEOUT_NS {
            self.clock.pause(UNREACHABLE_CHECK_NS);
        }
    }

    /// Whether there is work of this grant behind which no event can be recorded yet: commands that the program has submitted and the hook
    /// has queued, or work on a default stream while a capture keeps the tracker from using it.
    fn has_unreachable(&self) -> bool {
        let state = self.lock();
        // If the connection is lost, the grant has been settled.
        if state.phase != Phase::Draining {
            return false;
        }
        if self.captures.any() && !state.streams.all().iter().all(UsedStream::is_reachable_in_capture) {
            return true;
        }
        // Commands of a destroyed stream may be queued, too.
        let of_streams: BTreeSet<u64> = state.streams.all().iter().map(|used| used.context).collect();
        let of_orphans: BTreeSet<u64> = state.orphaned_marks.iter().map(|mark| mark.context).collect();
        drop(state);
        of_streams.iter().any(|context| self.driver.has_queued(*context))
            || of_orphans.difference(&of_streams).any(|context| self.driver.has_queued_of_destroyed(*context))
    }

    /// Records an event on every stream that may have work. Returns the contexts that have to be drained whole separately.
    fn mark_all(&self) -> (Vec<Mark>, Vec<u64>, Option<Measured>) {
        let _handles = lock(&self.handles_lock);
        let (used, mut marks, begin, commands_ahead) = {
            let mut state = self.lock();
            let marks = std::mem::take(&mut state.orphaned_marks);
            (state.streams.take(), marks, state.grant.measured.take(), state.commands_ahead)
        };
        let capturing = self.captures.any();
        let mut contexts = Vec::new();
        for used in used {
            if let Some(end) = used.end() {
                marks.push(end);
                continue;
            }
            match used.stream.kind {
                // A new event on either stream would invalidate the program's capture.
                StreamKind::Legacy | StreamKind::PerThread if capturing => {
                    marks.extend(used.tail());
                    continue;
                }
                StreamKind::PerThread => {
                    if used.is_dirty() && !contexts.contains(&used.context) {
                        contexts.push(used.context);
                    }
                }
                StreamKind::Created if capturing && self.driver.is_capturing(used.stream) => {}
                StreamKind::Legacy | StreamKind::Created => {
                    // A launch that raced with a wait leaves a stream that is marked clean but has work.
                    let has_work = || {
                        !commands_ahead.are_all_of(used.context, used.stream)
                            && self.driver.is_idle(used.context, used.stream) == Some(false)
                    };
                    if used.is_dirty() || has_work() {
                        marks.extend(self.driver.mark(used.context, used.stream));
                    }
                }
            }
            if let Some(tail) = used.tail() {
                self.driver.discard(tail);
            }
        }
        *lock(&self.drains_contexts) = (!contexts.is_empty()).then(|| self.clock.now_ns());
        (marks, contexts, begin)
    }

    fn end_context_drain(&self) {
        *lock(&self.drains_contexts) = None;
        self.contexts_drained.notify_all();
    }

    /// Waits until the drain has waited for whole contexts, or until it is inside the driver for certain.
    ///
    /// A wait for a context that is called during a capture in that context invalidates the capture. One that was called before does not. The
    /// handles cannot stay locked during the wait: the GPU's work may wait for what this thread does after the capture.
    pub(super) fn await_context_drain(&self) {
        let draining = lock(&self.drains_contexts);
        let Some(since) = *draining else { return };
        let left = CONTEXT_DRAIN_BEGINS_NS.saturating_sub(self.clock.now_ns().saturating_sub(since));
        let left = Duration::from_nanos(left);
        let _ended = self.contexts_drained.wait_timeout_while(draining, left, |since| since.is_some());
    }

    /// Computes what the grant used and reports it to the manager. Requests the next grant at once if a launch waits.
    fn settle_grant(&self, state: &mut State, now: u64, gpu: Option<(Measured, u64)>) {
        let mut end = state.grant.idle_since_ns.unwrap_or(now);
        if state.is_busy() {
            // The events' measurement is exact only for the burst at whose begin they were recorded.
            let exact = gpu.filter(|(begin, _)| begin.burst == state.grant.bursts);
            end = exact.map_or(now, |(begin, elapsed)| now.min(begin.at_ns.saturating_add(elapsed)));
            state.end_burst(end, exact.map(|(_, elapsed)| elapsed));
            self.report_activity(state, now);
            self.link.report_busy(state.total_busy_ns);
        }
        let overrun_ns =
            if state.grant.bursts == 0 { 0 } else { end.saturating_sub(state.grant.deadline_ns) };
        let used = GrantUsage { used_ms: ms(state.grant.busy_ns), overuse_ms: ms(overrun_ns) };
        state.overuse_ms = used.overuse_ms;
        let report = state.accepts_yield.then_some(used);
        if state.waiting_launches > 0 {
            self.request_grant(state, report);
        } else {
            state.phase = Phase::Closed;
            // A request that comes later has another past.
            state.next_burst_ms = None;
            if report.is_some() {
                state.window.interrupt();
                if let Err(error) = self.link.send(report, None) {
                    self.handle_loss(state, error);
                }
            }
        }
        // One of the waiting threads reads the answer and then wakes the others.
        if state.phase == Phase::Requested {
            self.launch_waiters.notify_one();
        } else {
            self.launch_waiters.notify_all();
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
