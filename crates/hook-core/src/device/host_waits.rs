//! What the program's waits and destructions show: idle streams and invalid handles.

use std::sync::MutexGuard;

use super::Device;
use super::state::{MEASURE_INTERVAL_NS, Phase, State};
use crate::host_bound::{Burst, HostBoundTest};
use crate::lock;
use crate::platform::{Clock, Driver, Mark, Stream, StreamKind, TokenLink};
use crate::streams::{UsedStream, WaitTarget};

/// If the median window is at least this many idle times, the token is returned as soon as a burst ends.
const LONG_WINDOW_FACTOR: u64 = 2;

/// A wait of the host for the GPU.
#[derive(Debug)]
pub struct HostWait {
    what: WaitTarget,
    thread: u32,
    begun_ns: u64,
    epoch: u64,
    end: Option<Mark>,
}

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Begins a wait of a thread of the host for `what`. Launches from here on are distinguished from those that the wait covers.
    pub fn begin_wait(&self, what: WaitTarget, thread: u32) -> HostWait {
        let begun_ns = self.clock.now_ns();
        let is_measured = self.begin_blocking_at(begun_ns);
        let epoch = self.gate.next_epoch();
        HostWait { what, thread, begun_ns, epoch, end: if is_measured { self.mark_end(what) } else { None } }
    }

    /// Records an event at the end of a burst that is being measured, if the wait covers all of it.
    fn mark_end(&self, what: WaitTarget) -> Option<Mark> {
        let _handles = lock(&self.handles_lock);
        let now = self.clock.now_ns();
        let mut state = self.lock();
        if !is_measured(&state) || now < state.next_mark_end_ns || self.captures.any() {
            return None;
        }
        let used = *state.streams.only_dirty().filter(|used| what.covers(used))?;
        state.next_mark_end_ns = now + MEASURE_INTERVAL_NS;
        drop(state);
        // The default stream of another thread has no name in this thread.
        let nameable = used.stream.kind != StreamKind::PerThread
            || what == WaitTarget::Stream(used.context, used.stream);
        if nameable { self.driver.mark(used.context, used.stream) } else { None }
    }

    /// Ends a wait; `succeeded` if the GPU has finished the work that the wait covers.
    pub fn end_wait(&self, wait: HostWait, succeeded: bool) {
        let now = self.clock.now_ns();
        self.hold_kernels.host_wait_ended(now, matches!(wait.what, WaitTarget::Context(_)));
        let measured = wait.end.and_then(|end| self.measured_ns(end, succeeded));
        let mut state = self.lock();
        let is_draining = state.phase == Phase::Draining;
        if succeeded && (is_draining || state.phase == Phase::Open && !state.is_busy()) {
            // The drain ends the burst. It need not wait for the streams that this wait has covered.
            state.streams.finished(wait.what, wait.epoch);
        } else if succeeded && state.phase == Phase::Open {
            let begun_ns = state.burst.running_since();
            state.streams.finished(wait.what, wait.epoch);
            self.end_burst_if_clean(&mut state, now, measured);
            if !state.is_busy() {
                state.waited_ns = Some(now);
                if let Some(begun_ns) = begun_ns {
                    self.choose_slices(&mut state, (begun_ns, wait.begun_ns, now));
                }
            }
        }
        if succeeded {
            self.record_wait(&mut state, wait.thread, (wait.begun_ns, now));
        }
        self.stop_blocking(&mut state, now);
    }

    /// GPU time from the begin of the burst that is being measured to `end`, if the wait has succeeded. Another thread may have ended the
    /// context meanwhile, but ends none during this call.
    fn measured_ns(&self, end: Mark, succeeded: bool) -> Option<u64> {
        let _handles = lock(&self.handles_lock);
        let begin = if succeeded { self.lock().grant.current_measurement() } else { None };
        let measured = begin.and_then(|begin| self.driver.elapsed_ns(begin.mark, end));
        self.driver.discard(end);
        measured
    }

    /// Records a burst that began, was waited for and ended at these times, and reports which time slices best-effort clients should have.
    /// A burst that may be the rest of a longer one is left out.
    fn choose_slices(&self, state: &mut State, (begun_ns, waited_ns, ended_ns): (u64, u64, u64)) {
        let Some(contenders) = self.link.critical_contenders().filter(|contenders| *contenders > 0) else {
            return;
        };
        state.ended_by_wait = true;
        let all = self.gate.launches();
        let launches = all.saturating_sub(std::mem::replace(&mut state.launches_at_wait, all));
        if !state.begun_after_wait {
            return;
        }
        let burst = Burst { begun_ns, waited_ns, ended_ns, launches };
        let in_force = self.link.slices();
        self.change_slices(state, |test| test.burst_ended(burst, contenders, in_force));
    }

    /// Reports the wanted time slices if `change` has changed them.
    pub(super) fn change_slices(&self, state: &mut State, change: impl FnOnce(&mut HostBoundTest)) {
        let before = state.host_bound.report();
        change(&mut state.host_bound);
        let report = state.host_bound.report();
        if report != before {
            self.link.report_slices(report);
        }
    }

    /// Ends the call.
    pub fn end_blocking(&self) {
        let now = self.clock.now_ns();
        self.stop_blocking(&mut self.lock(), now);
    }

    /// Begins a call that may wait for the GPU, for any work. Until [`Self::end_blocking`] the manager counts the process as active.
    /// Returns whether the running burst is being measured.
    pub fn begin_blocking(&self) -> bool {
        self.begin_blocking_at(self.clock.now_ns())
    }

    pub(super) fn begin_blocking_at(&self, now: u64) -> bool {
        let mut state = self.lock();
        state.blocked_threads += 1;
        let is_measured = is_measured(&state);
        self.report_activity_and_unlock(state, now);
        is_measured
    }

    pub(super) fn stop_blocking(&self, state: &mut State, now: u64) {
        state.blocked_threads = state.blocked_threads.saturating_sub(1);
        self.report_activity(state, now);
    }

    /// Ends the running burst if no stream has work left. Wakes the tracker if the token should be returned at once.
    pub(super) fn end_burst_if_clean(&self, state: &mut State, now: u64, measured_ns: Option<u64>) {
        if state.streams.any_dirty() || !state.orphaned_marks.is_empty() {
            return;
        }
        state.end_burst(now, measured_ns);
        // Before the next burst is reported: the manager charges the one that ended to the time before.
        self.link.report_busy(state.total_busy_ns);
        // The next launch begins a burst and has to take the slow path.
        self.gate.next_epoch();
        state.holds_until_ns = self.hold_kernels.work_finished(now, || self.gate.launches());
        self.report_activity(state, now);
        if state.grant.is_unlimited() || !state.accepts_yield || !self.link.contended() {
            return;
        }
        let long_ms = (LONG_WINDOW_FACTOR * self.settings.idle_ns) as f64 / 1e6;
        if state.window.predict_median(now) >= long_ms {
            state.grant.return_at_once = true;
            self.wake_tracker_locked(state);
        }
    }

    /// Prepares for a capture: every launch takes the slow path from here on, and the tracker has stopped using default streams. A drain that
    /// has begun to wait for whole contexts ends first, or is inside the driver.
    ///
    /// If no other capture is active (`is_first`), the legacy streams with work get an event while that is still possible.
    pub fn prepare_capture(&self, is_first: bool) {
        self.gate.next_epoch();
        let handles = lock(&self.handles_lock);
        if is_first {
            let is_legacy_with_work =
                |used: &&UsedStream| used.is_dirty() && used.stream.kind == StreamKind::Legacy;
            let used: Vec<_> =
                self.lock().streams.all().iter().filter(is_legacy_with_work).copied().collect();
            used.iter().for_each(|used| self.mark_tail(used.context, used.stream));
        }
        drop(handles);
        self.await_context_drain();
    }

    /// The calling thread has submitted a launch to a default stream while a capture is active. Another thread could not record an event
    /// there without invalidating the capture, so this thread does: the launch has shown that the stream may be used.
    pub fn launched_during_capture(&self, stream: Stream) {
        if let Some(located) = self.driver.locate(stream) {
            self.mark_tail(located.context, stream);
        }
    }

    /// Records an event behind the stream's work, for the drain.
    pub(super) fn mark_tail(&self, context: u64, stream: Stream) {
        // An unlimited grant is never drained.
        if self.lock().grant.is_unlimited() {
            return;
        }
        let Some(mark) = self.driver.mark(context, stream) else { return };
        let unused = self.lock().streams.set_tail(context, stream, mark);
        if let Some(unused) = unused {
            self.driver.discard(unused);
        }
    }

    /// Records events behind the work that the process is known to have, as far as this thread can.
    pub fn mark_work(&self) -> Vec<Mark> {
        let _handles = lock(&self.handles_lock);
        let capturing = self.captures.any();
        let is_markable = |used: &UsedStream| match used.stream.kind {
            StreamKind::PerThread => false,
            StreamKind::Legacy => !capturing,
            StreamKind::Created => !(capturing && self.driver.is_capturing(used.stream)),
        };
        let used: Vec<_> = self.lock().streams.all().iter().filter(|used| used.is_dirty()).copied().collect();
        let marks = used.iter().filter(|used| is_markable(used));
        marks.filter_map(|used| self.driver.mark(used.context, used.stream)).collect()
    }

    /// Returns the events of the list for reuse if the GPU has reached all of them. Otherwise, or if a context is about to end, the list
    /// stays as it is, and the result is `false`.
    pub fn discard_if_reached(&self, marks: &mut Vec<Mark>) -> bool {
        let Ok(_handles) = self.handles_lock.try_lock() else { return false };
        let is_reached = marks.iter().all(|mark| self.driver.is_reached(*mark));
        if is_reached {
            marks.drain(..).for_each(|mark| self.driver.discard(mark));
        }
        is_reached
    }

    /// Prepares for the destruction of a stream: records an event behind its remaining work, so that the handle is not needed again.
    ///
    /// The guard must live until the driver's call has returned. Until then the tracker uses no stream handle.
    pub fn forget_stream(&self, stream: Stream) -> MutexGuard<'_, ()> {
        let handles = lock(&self.handles_lock);
        let removed = {
            let mut state = self.lock();
            state.commands_ahead.stream_gone(stream);
            state.streams.remove(stream)
        };
        if let Some(used) = removed {
            let capturing = self.captures.any() && self.driver.is_capturing(stream);
            let is_needed = used.is_dirty() && used.end().is_none() && !capturing;
            let mark = if is_needed { self.driver.mark(used.context, used.stream) } else { None };
            self.lock().orphaned_marks.extend(used.tail().into_iter().chain(mark));
        }
        // Another stream may get the same handle and has to be noted separately.
        self.gate.next_epoch();
        handles
    }

    /// Prepares for a call that may end a context. Waits for a drain in progress.
    ///
    /// The guards must live until the driver's call has returned, and [`Self::forget_context`] has been called if the context ended.
    pub fn lock_contexts(&self) -> (MutexGuard<'_, ()>, MutexGuard<'_, ()>) {
        let draining = lock(&self.drain_lock);
        let handles = lock(&self.handles_lock);
        (draining, handles)
    }

    /// Forgets a context that has ended, with all its streams and events. None of them is passed to the driver again.
    pub fn forget_context(&self, context: u64) {
        let now = self.clock.now_ns();
        let mut state = self.lock();
        state.streams.remove_context(context);
        state.commands_ahead.context_gone(context);
        state.orphaned_marks.retain(|mark| mark.context != context);
        state.grant.measured.take_if(|measured| measured.mark.context == context);
        if state.is_busy() {
            self.end_burst_if_clean(&mut state, now, None);
        }
        drop(state);
        self.gate.next_epoch();
    }
}

/// Whether events measure the running burst.
fn is_measured(state: &State) -> bool {
    state.phase == Phase::Open && state.is_busy() && state.grant.current_measurement().is_some()
}
