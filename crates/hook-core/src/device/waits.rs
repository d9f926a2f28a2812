//! What the program's own waits and destructions tell: streams that are idle, handles that are gone.

use std::sync::{MutexGuard, PoisonError};

use super::Device;
use super::state::{MEASURE_NS, Phase, State};
use crate::platform::{Clock, Driver, Mark, Stream, StreamKind, TokenLink};
use crate::streams::Waited;

/// A median pause at least this many times the idle time says: give the token back as soon as a burst ends.
const LONG_PAUSE: u64 = 2;

/// A wait of the host for the GPU.
#[derive(Debug)]
pub struct Wait {
    what: Waited,
    epoch: u64,
    end: Option<Mark>,
}

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// A wait of the host for `what` begins. Launches that come later will be told apart from those it waits for.
    pub fn wait_begins(&self, what: Waited) -> Wait {
        let is_measured = self.blocks();
        let epoch = self.gate.next_epoch();
        Wait { what, epoch, end: if is_measured { self.mark_end(what) } else { None } }
    }

    /// Marks the end of a burst that is being measured, if the wait is for all of it.
    fn mark_end(&self, what: Waited) -> Option<Mark> {
        let _handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now_ns();
        let mut state = self.lock();
        if !is_measured(&state) || now < state.mark_end_ns || self.captures.any() {
            return None;
        }
        let used = *state.streams.only_dirty().filter(|used| what.covers(used))?;
        state.mark_end_ns = now + MEASURE_NS;
        drop(state);
        // Another thread's default stream cannot be named from here.
        let nameable =
            used.stream.kind != StreamKind::PerThread || what == Waited::Stream(used.context, used.stream);
        if nameable { self.driver.mark(used.context, used.stream) } else { None }
    }

    /// The wait is over; `succeeded` if the GPU has finished what it was for.
    pub fn wait_ended(&self, wait: Wait, succeeded: bool) {
        let now = self.clock.now_ns();
        self.hints.waited(now);
        let measured = wait.end.filter(|_| succeeded).and_then(|end| {
            let begin = self.lock().grant.measured_now()?;
            self.driver.elapsed_ns(begin.mark, end)
        });
        if let Some(end) = wait.end {
            self.driver.discard(end);
        }
        let mut state = self.lock();
        if succeeded && state.phase == Phase::Open && state.is_busy() {
            state.streams.finished(wait.what, wait.epoch);
            self.end_burst_if_clean(&mut state, now, measured);
        }
        self.unblock(&mut state, now);
    }

    /// The calling thread is about to make a call that may wait for the GPU, for whatever work. Until it
    /// [ends](Self::block_ended) the manager takes the process for one that wants the GPU.
    pub fn block_begins(&self) {
        self.blocks();
    }

    /// The call is over.
    pub fn block_ended(&self) {
        let now = self.clock.now_ns();
        self.unblock(&mut self.lock(), now);
    }

    /// Begins to block; whether the running burst is being measured.
    fn blocks(&self) -> bool {
        let now = self.clock.now_ns();
        let mut state = self.lock();
        state.blocked += 1;
        let wakes = self.tell_activity(&mut state, now);
        let (standing, is_measured) = (state.grant.is_standing(), is_measured(&state));
        drop(state);
        if wakes {
            self.link.ring(standing);
        }
        is_measured
    }

    fn unblock(&self, state: &mut State, now: u64) {
        state.blocked = state.blocked.saturating_sub(1);
        self.tell_activity(state, now);
    }

    /// Ends the running burst if no stream has work left; wakes the tracker if the token should go back at once.
    pub(super) fn end_burst_if_clean(&self, state: &mut State, now: u64, measured_ns: Option<u64>) {
        if state.streams.any_dirty() || !state.orphans.is_empty() {
            return;
        }
        state.end_burst(now, measured_ns);
        self.tell_activity(state, now);
        // The next launch begins a burst and has to be noted.
        self.gate.next_epoch();
        self.hints.idle(now, || self.gate.launches());
        if state.grant.is_standing() {
            // The tracker reports at each of its looks.
            return;
        }
        self.report(state, now);
        if !state.takes_yield || !self.link.contended() {
            return;
        }
        let long_ms = (LONG_PAUSE * self.settings.idle_ns) as f64 / 1e6;
        if state.window.typical(now) >= long_ms {
            state.grant.give_back = true;
            self.call_tracker(state);
        }
    }

    /// A capture is about to begin: every launch has to be looked at from here on, and the tracker is off the streams.
    pub fn capture_begins(&self) {
        self.gate.next_epoch();
        drop(self.handles.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The program is about to destroy a stream: marks what it still has to do, so that the handle is not needed again.
    ///
    /// The guard must live until the driver's call is over: until then the tracker keeps off all stream handles.
    pub fn forget_stream(&self, stream: Stream) -> MutexGuard<'_, ()> {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = self.lock().streams.remove(stream);
        if let Some(used) = removed.filter(|used| used.is_dirty()) {
            let capturing = self.captures.any() && self.driver.is_capturing(stream);
            let mark = if capturing { None } else { self.driver.mark(used.context, used.stream) };
            if let Some(mark) = mark {
                self.lock().orphans.push(mark);
            }
        }
        // Another stream may get the same handle and has to be noted for itself.
        self.gate.next_epoch();
        handles
    }

    /// The program is about to make a call that may end a context. Waits for a drain under way.
    ///
    /// The guards must live until the driver's call is over, and [`Self::forget_context`] has been called if it ended one.
    pub fn hold_contexts(&self) -> (MutexGuard<'_, ()>, MutexGuard<'_, ()>) {
        let whole = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        (whole, handles)
    }

    /// The context is gone with all its streams and events; none of them is given to the driver again.
    pub fn forget_context(&self, context: u64) {
        let now = self.clock.now_ns();
        let mut state = self.lock();
        state.streams.remove_context(context);
        state.orphans.retain(|mark| mark.context != context);
        state.grant.measured.take_if(|measured| measured.mark.context == context);
        if state.is_busy() {
            self.end_burst_if_clean(&mut state, now, None);
        }
        drop(state);
        self.gate.next_epoch();
    }
}

/// Whether events measure the running burst. Those of a standing grant are not.
fn is_measured(state: &State) -> bool {
    state.phase == Phase::Open && state.is_busy() && state.grant.measured_now().is_some()
}
