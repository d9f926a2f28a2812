//! Work that passes no launch gate: copies, memsets, and polls for completion.
//!
//! A token does not delay this work. But a process whose channel groups are disabled, and which has no other work, must be enabled for
//! it. So under an unlimited grant this work is reported as activity. Token-scheduled processes are never disabled, so theirs is not.

use std::sync::atomic::Ordering::*;

use super::Device;
use super::state::{Phase, State};
use crate::latency::CallKind;
use crate::platform::{Clock, Driver, Stream, TokenLink};
use crate::thread_state::ThreadState;

/// After this time without a poll the program is no longer waiting.
const POLLING_TIMEOUT_NS: u64 = 5_000_000;

/// Distinguishes noted work from noted launches of the same stream: no stream handle has this bit.
const WORK_FLAG: u64 = 1 << 63;

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Whether work on `stream` has to be [noted](Self::begin_work). Takes no lock and cannot panic.
    #[inline]
    pub fn needs_note(&self, stream: Stream, thread: &ThreadState) -> bool {
        if self.link.deadline_ticks() != u64::MAX {
            return false;
        }
        let epoch = self.gate.epoch();
        !thread.has_noted(self.gate.device(), stream.handle, epoch)
            && !thread.has_noted(self.gate.device(), stream.handle | WORK_FLAG, epoch)
    }

    /// Notes work that is about to be submitted. If `true`, [`Self::end_submission`] is to be called after the driver's call.
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
        state.streams.note(located.context, stream, located.blocking, epoch);
        self.record_call(&mut state, (thread.id(), CallKind::Work), (None, now));
        self.report_activity_and_unlock(state, now);
        if !self.captures.any() {
            thread.set_noted(self.gate.device(), stream.handle | WORK_FLAG, epoch);
        }
        true
    }

    /// The work of [`Self::begin_work`] has been submitted, or the driver refused it.
    pub fn end_submission(&self) {
        self.submitting_ungated.fetch_sub(1, Release);
    }

    /// The program polled and the work was unfinished. It may have no other way to wait for it.
    #[inline]
    pub fn poll_found_unfinished(&self) {
        self.record_unfinished();
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

    /// A thread of the program polled and the work was finished.
    #[inline]
    pub fn poll_found_finished(&self, thread: u32) {
        self.record_finished(thread);
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
        self.report_activity_and_unlock(state, now);
    }

    #[cold]
    fn end_polling(&self) {
        let now = self.clock.now_ns();
        self.stop_polling(&mut self.lock(), now);
    }

    /// Ends the activity of a program that has stopped polling. Called by the tracker.
    pub(super) fn expire_polling(&self, now: u64) {
        let expired = |polled: u64| now.saturating_sub(polled) >= POLLING_TIMEOUT_NS;
        if self.polling.load(Relaxed) && expired(self.polled_ns.load(Relaxed)) {
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
