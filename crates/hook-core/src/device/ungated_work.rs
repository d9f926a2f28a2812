//! Work that passes no gate: copies, memsets, and what a program that asks again and again waits for.
//!
//! Nobody may hold it up by token, but a process that is stopped and has nothing else to do must be let run for it. So it counts as
//! work as long as a standing grant is held; processes that take turns by token are not stopped by anybody but themselves.

use std::sync::atomic::Ordering::*;

use super::Device;
use super::state::{Phase, State};
use crate::platform::{Clock, Driver, Stream, TokenLink};
use crate::thread_state::ThreadState;

/// A program that has not asked for so long is not waiting any more.
const ASKS_AGAIN_NS: u64 = 5_000_000;

/// Tells what is remembered of work from what is remembered of launches: no handle of a stream has this bit.
const WORK: u64 = 1 << 63;

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Whether work on `stream` has to be [noted](Self::work_begins). Takes no lock and cannot panic.
    #[inline]
    pub fn needs_note(&self, stream: Stream, thread: &ThreadState) -> bool {
        if self.link.deadline_ticks() != u64::MAX {
            return false;
        }
        let epoch = self.gate.epoch();
        !thread.has_noted(self.ordinal, stream.handle, epoch)
            && !thread.has_noted(self.ordinal, stream.handle | WORK, epoch)
    }

    /// Notes work that is about to be submitted; `true` if [`Self::work_ended`] is to be called when it is.
    #[cold]
    pub fn begin_work(&self, stream: Stream, thread: &ThreadState) -> bool {
        if self.captures.any() && self.driver.is_capturing(stream) {
            return false;
        }
        let Some((located, mut state)) = self.locate(stream) else { return false };
        let now = self.clock.now_ns();
        let epoch = self.gate.epoch();
        if state.phase != Phase::Open || !state.grant.is_unlimited() {
            return false;
        }
        if !state.is_busy() {
            state.begin_burst(now);
        }
        self.submitting_ungated.fetch_add(1, Relaxed);
        let became_active = self.report_activity(&mut state, now);
        state.streams.note(located.context, stream, located.blocking, epoch);
        drop(state);
        if became_active {
            self.link.wake_manager();
        }
        if !self.captures.any() {
            thread.set_noted(self.ordinal, stream.handle | WORK, epoch);
        }
        true
    }

    /// What [`Self::work_begins`] announced has been submitted, or refused by the driver.
    pub fn end_submission(&self) {
        self.submitting_ungated.fetch_sub(1, Release);
    }

    /// The program has asked whether something is done, and it was not: it may have no other way to wait for it.
    #[inline]
    pub fn poll_found_unfinished(&self) {
        if self.link.deadline_ticks() != u64::MAX
            || self.reported_active.load(Relaxed) && !self.polling.load(Relaxed)
        {
            return;
        }
        let now = self.clock.now_ns();
        self.polled_ns.store(now, Relaxed);
        if !self.polling.load(Relaxed) {
            self.start_polling(now);
        }
    }

    /// It has asked, and something was done.
    #[inline]
    pub fn poll_found_finished(&self) {
        if self.polling.load(Relaxed) {
            self.end_polling();
        }
    }

    #[cold]
    fn start_polling(&self, now: u64) {
        let mut state = self.lock();
        if state.phase != Phase::Open || !state.grant.is_unlimited() {
            return;
        }
        self.polling.store(true, Relaxed);
        state.polling = true;
        let became_active = self.report_activity(&mut state, now);
        drop(state);
        if became_active {
            self.link.wake_manager();
        }
    }

    #[cold]
    fn end_polling(&self) {
        let now = self.clock.now_ns();
        self.stop_polling(&mut self.lock(), now);
    }

    /// Finds out whether a program that asked has given up. Called by the tracker.
    pub(super) fn expire_polling(&self, now: u64) {
        let over = |asked: u64| now.saturating_sub(asked) >= ASKS_AGAIN_NS;
        if self.polling.load(Relaxed) && over(self.polled_ns.load(Relaxed)) {
            self.stop_polling(&mut self.lock(), now);
        }
    }

    pub(super) fn stop_polling(&self, state: &mut State, now: u64) {
        self.polling.store(false, Relaxed);
        if std::mem::take(&mut state.polling) {
            self.report_activity(state, now);
        }
    }
}
