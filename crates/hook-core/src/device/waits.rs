//! What the program's own waits and destructions tell: streams that are idle, handles that are gone.

use std::sync::{MutexGuard, PoisonError};

use super::Device;
use super::state::{Phase, State};
use crate::platform::{Clock, Driver, Stream, TokenLink};
use crate::streams::Waited;

/// A median pause at least this many times the idle time says: give the token back as soon as a burst ends.
const LONG_PAUSE: u64 = 2;

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// A wait of the host for the GPU begins. Launches that come later will be told apart from those it waits for.
    pub fn wait_begins(&self) -> u64 {
        self.gate.next_epoch()
    }

    /// The wait that began with `epoch` was for `what`, and has succeeded.
    pub fn wait_ended(&self, what: Waited, epoch: u64) {
        let now = self.clock.now_ns();
        let mut state = self.lock();
        if state.phase != Phase::Open || !state.is_busy() {
            return;
        }
        state.streams.finished(what, epoch);
        self.end_burst_if_clean(&mut state, now);
    }

    /// Ends the running burst if no stream has work left; wakes the tracker if the token should go back at once.
    pub(super) fn end_burst_if_clean(&self, state: &mut State, now: u64) {
        if state.streams.any_dirty() || !state.orphans.is_empty() {
            return;
        }
        state.end_burst(now, None);
        // The next launch begins a burst and has to be noted.
        self.gate.next_epoch();
        self.report(state, now);
        if state.grant.is_standing() || !state.takes_yield || !self.link.contended() {
            return;
        }
        let long_ms = (LONG_PAUSE * self.settings.idle_ns) as f64 / 1e6;
        if state.window.typical(now) >= long_ms {
            state.grant.give_back = true;
            self.tracking.notify_one();
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

    /// The program is about to destroy a context with all its streams and events. Waits for a drain under way.
    ///
    /// The guards must live until the driver's call is over.
    pub fn forget_context(&self, context: u64) -> (MutexGuard<'_, ()>, MutexGuard<'_, ()>) {
        let whole = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now_ns();
        let mut state = self.lock();
        state.streams.remove_context(context);
        let (gone, kept) = std::mem::take(&mut state.orphans).into_iter().partition(|m| m.context == context);
        state.orphans = kept;
        let mut gone: Vec<_> = gone;
        gone.extend(state.grant.first.take_if(|(mark, _)| mark.context == context).map(|(mark, _)| mark));
        if state.is_busy() {
            self.end_burst_if_clean(&mut state, now);
        }
        drop(state);
        for mark in gone {
            self.driver.discard(mark);
        }
        self.gate.next_epoch();
        (whole, handles)
    }
}
