//! Work that passes no gate: copies, memsets, and what a program that asks again and again waits for.
//!
//! Nobody may hold it up by token, but a process that is stopped and has nothing else to do must be let run for it. So it counts as
//! work as long as a standing grant is held; processes that take turns by token are not stopped by anybody but themselves.

use std::sync::atomic::Ordering::*;

use super::Device;
use super::state::{Phase, State};
use crate::platform::{Clock, Driver, Stream, TokenLink};
use crate::thread::Thread;

/// A program that has not asked for so long is not waiting any more.
const ASKS_AGAIN_NS: u64 = 5_000_000;

/// Tells what is remembered of work from what is remembered of launches: no handle of a stream has this bit.
const WORK: u64 = 1 << 63;

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Whether work on `stream` has to be [noted](Self::work_begins). Takes no lock and cannot panic.
    #[inline]
    pub fn is_news(&self, stream: Stream, thread: &Thread) -> bool {
        if self.link.deadline_ticks() != u64::MAX {
            return false;
        }
        let epoch = self.gate.epoch();
        !thread.knows(self.ordinal, stream.handle, epoch)
            && !thread.knows(self.ordinal, stream.handle | WORK, epoch)
    }

    /// Notes work that is about to be submitted; `true` if [`Self::work_ended`] is to be called when it is.
    #[cold]
    pub fn work_begins(&self, stream: Stream, thread: &Thread) -> bool {
        if self.captures.any() && self.driver.is_capturing(stream) {
            return false;
        }
        let Some((located, mut state)) = self.locate(stream) else { return false };
        let now = self.clock.now_ns();
        let epoch = self.gate.epoch();
        if state.phase != Phase::Open || !state.grant.is_standing() {
            return false;
        }
        if !state.is_busy() {
            state.begin_burst(now);
        }
        self.submitting.fetch_add(1, Relaxed);
        let wakes = self.tell_activity(&mut state, now);
        state.streams.note(located.context, stream, located.blocking, epoch);
        drop(state);
        if wakes {
            self.link.ring(true);
        }
        if !self.captures.any() {
            thread.remember(self.ordinal, stream.handle | WORK, epoch);
        }
        true
    }

    /// What [`Self::work_begins`] announced has been submitted, or refused by the driver.
    pub fn work_ended(&self) {
        self.submitting.fetch_sub(1, Release);
    }

    /// The program has asked whether something is done, and it was not: it may have no other way to wait for it.
    #[inline]
    pub fn asked_in_vain(&self) {
        if self.link.deadline_ticks() != u64::MAX || self.active.load(Relaxed) && !self.asking.load(Relaxed) {
            return;
        }
        let now = self.clock.now_ns();
        self.asked_ns.store(now, Relaxed);
        if !self.asking.load(Relaxed) {
            self.begins_asking(now);
        }
    }

    /// It has asked, and something was done.
    #[inline]
    pub fn asked_well(&self) {
        if self.asking.load(Relaxed) {
            self.ends_asking();
        }
    }

    #[cold]
    fn begins_asking(&self, now: u64) {
        let mut state = self.lock();
        if state.phase != Phase::Open || !state.grant.is_standing() {
            return;
        }
        self.asking.store(true, Relaxed);
        state.asking = true;
        let wakes = self.tell_activity(&mut state, now);
        drop(state);
        if wakes {
            self.link.ring(true);
        }
    }

    #[cold]
    fn ends_asking(&self) {
        let now = self.clock.now_ns();
        self.stop_asking(&mut self.lock(), now);
    }

    /// Finds out whether a program that asked has given up. Called by the tracker.
    pub(super) fn find_out_whether_asking(&self, now: u64) {
        let over = |asked: u64| now.saturating_sub(asked) >= ASKS_AGAIN_NS;
        if self.asking.load(Relaxed) && over(self.asked_ns.load(Relaxed)) {
            self.stop_asking(&mut self.lock(), now);
        }
    }

    pub(super) fn stop_asking(&self, state: &mut State, now: u64) {
        self.asking.store(false, Relaxed);
        if std::mem::take(&mut state.asking) {
            self.tell_activity(state, now);
        }
    }
}
