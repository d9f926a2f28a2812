//! Steps and requests of a latency-critical process: which calls and waits begin and end them. All of it uses times that were read for
//! other purposes, except the end of a poll.

use std::sync::atomic::Ordering::Relaxed;

use super::Device;
use super::state::State;
use crate::burst_admission::REQUEST_GAP_NS;
use crate::latency::{CallKind, Measured, StepEnd};
use crate::platform::{Clock, Driver, TokenLink};

/// A call that waits for work that is not known, or copies to the GPU.
#[derive(Debug)]
pub struct UnnamedWait {
    thread: u32,
    begun_ns: u64,
    end: StepEnd,
}

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Records that the call which is about to be noted began at `now_ns`: what precedes its work belongs to its step.
    pub fn call_began(&self, now_ns: u64) {
        self.call_began_ns.store(now_ns, Relaxed);
    }

    /// Records a call of a thread that was made at `now_ns`, or has waited since `waits_since_ns`.
    pub(super) fn record_call(
        &self,
        state: &mut State,
        (thread, kind): (u32, CallKind),
        (waits_since_ns, now_ns): (Option<u64>, u64),
    ) {
        if !measures(state) {
            return;
        }
        let mut began_ns = waits_since_ns.unwrap_or(now_ns);
        let known_ns = self.call_began_ns.load(Relaxed);
        if known_ns != 0 {
            self.call_began_ns.store(0, Relaxed);
            if now_ns.saturating_sub(known_ns) < REQUEST_GAP_NS {
                began_ns = began_ns.min(known_ns);
            }
        }
        let mut missed = None;
        state.latency.called(thread, kind, began_ns, &mut |measured| {
            missed = self.report_latency(measured).or(missed)
        });
        self.react_to_goal(state, missed, now_ns);
    }

    /// Whether a request has missed the client's latency goal; `None` for other measurements, and without a goal.
    fn report_latency(&self, measured: Measured) -> Option<bool> {
        self.link.report_latency(measured);
        measured.misses(self.link.slo_ns())
    }

    /// A request beside others has ended that may have missed its goal.
    fn react_to_goal(&self, state: &mut State, missed: Option<bool>, now: u64) {
        let Some(missed) = missed else { return };
        let Some(contenders) = self.link.critical_contenders().filter(|contenders| *contenders > 0) else {
            return;
        };
        let in_force = self.link.slices();
        self.change_slices(state, |test| test.request_ended(missed, now, contenders, in_force));
    }

    /// Begins a wait of a thread for an event.
    pub fn begin_event_wait(&self, thread: u32) -> UnnamedWait {
        let begun_ns = self.clock.now_ns();
        self.begin_blocking_at(begun_ns);
        UnnamedWait { thread, begun_ns, end: StepEnd::Waited }
    }

    /// Begins a synchronous copy of a thread to the GPU.
    pub fn begin_copy(&self, thread: u32) -> UnnamedWait {
        let begun_ns = self.clock.now_ns();
        self.record_call(&mut self.lock(), (thread, CallKind::Copy), (None, begun_ns));
        self.begin_blocking_at(begun_ns);
        UnnamedWait { thread, begun_ns, end: StepEnd::Passed { after_calls: true } }
    }

    /// Ends the call; `succeeded` if what it waited for has finished.
    pub fn end_unnamed_wait(&self, wait: UnnamedWait, succeeded: bool) {
        let UnnamedWait { thread, begun_ns, end } = wait;
        let now = self.clock.now_ns();
        let mut state = self.lock();
        if succeeded {
            self.found_unfinished.store(false, Relaxed);
            self.end_step(&mut state, (thread, end), (begun_ns, now));
        }
        self.stop_blocking(&mut state, now);
    }

    /// Records that a named wait has ended. Later launches of the waiting thread take the slow path in any case.
    pub(super) fn record_wait(&self, state: &mut State, thread: u32, times_ns: (u64, u64)) {
        // What a poll found before concerns the step that has ended.
        self.found_unfinished.store(false, Relaxed);
        let owner = state.latency.waited(thread, StepEnd::Waited, times_ns);
        if owner.is_some_and(|owner| owner != thread) {
            self.gate.next_epoch();
        }
    }

    /// Records a poll that found work unfinished.
    #[inline]
    pub(super) fn record_unfinished(&self) {
        if self.measures_latency.load(Relaxed) {
            self.found_unfinished.store(true, Relaxed);
        }
    }

    /// Records a poll of a thread that found work finished.
    #[inline]
    pub(super) fn record_finished(&self, thread: u32) {
        if self.measures_latency.load(Relaxed) {
            self.end_polled_step(thread);
        }
    }

    #[cold]
    fn end_polled_step(&self, thread: u32) {
        let is_awaited = self.found_unfinished.load(Relaxed);
        self.found_unfinished.store(false, Relaxed);
        let now = self.clock.now_ns();
        let mut state = self.lock();
        let launches = self.gate.launches();
        let after_calls = std::mem::replace(&mut state.launches_at_poll, launches) != launches;
        let end = if is_awaited { StepEnd::Waited } else { StepEnd::Passed { after_calls } };
        self.end_step(&mut state, (thread, end), (now, now));
    }

    /// Records that a call has ended of which the next launch of the thread would not notice that it is the first of another step: it has to
    /// take the slow path. Not so if the step may continue: programs poll between their launches, which would all be slower.
    fn end_step(&self, state: &mut State, (thread, end): (u32, StepEnd), times_ns: (u64, u64)) {
        let is_known = state.latency.waited(thread, end, times_ns).is_some();
        // The launches before may not have been recorded, because the process was not measured yet.
        if end == StepEnd::Waited && (is_known || measures(state)) {
            self.gate.next_epoch();
        }
    }

    /// Reports steps and requests that are over. Called by the tracker.
    pub(super) fn expire_steps(&self, state: &mut State, now: u64) {
        self.measures_latency.store(measures(state), Relaxed);
        let is_busy = state.is_busy() || state.blocked_threads > 0;
        let mut missed = None;
        state.latency.expire(now, is_busy, &mut |measured| missed = self.report_latency(measured).or(missed));
        self.react_to_goal(state, missed, now);
    }

    /// The connection is lost: what runs is not measured.
    pub(super) fn interrupt_steps(&self, state: &mut State) {
        self.measures_latency.store(false, Relaxed);
        state.latency.interrupt(&mut |measured| _ = self.report_latency(measured));
    }
}

fn measures(state: &State) -> bool {
    state.follows_deadlines && state.grant.is_unlimited()
}
