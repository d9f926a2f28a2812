//! The slow path of a launch: note its stream, or acquire a grant.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use sluice_comm::HandOffStep;

use super::state::{Grant, MEASURE_INTERVAL_NS, Measured, Phase, State};
use super::{Device, LaunchPass};
use crate::latency::CallKind;
use crate::outcome::{Bypass, Outcome};
use crate::platform::{
    Clock, Driver, GrantRequest, GrantUsage, LinkError, Stream, StreamKind, StreamLocation, TokenLink,
};
use crate::streams::UsedStream;
use crate::thread_state::ThreadState;

/// How often a waiting launch checks whether the drain has stalled.
const STALL_CHECK: Duration = Duration::from_millis(50);

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Lets a launch pass that [`Self::try_launch`] refused: waits for a grant if there is none, then notes the stream.
    #[cold]
    pub fn acquire<'s>(
        &'s self,
        stream: Stream,
        thread: &ThreadState,
        pass: LaunchPass<'s>,
    ) -> Outcome<LaunchPass<'s>> {
        let outcome = self.wait_and_note(stream, thread, pass);
        if let Outcome::Bypassed(reason) = outcome {
            self.launch_bypasses(reason);
        }
        outcome
    }

    fn wait_and_note<'s>(
        &'s self,
        stream: Stream,
        thread: &ThreadState,
        mut pass: LaunchPass<'s>,
    ) -> Outcome<LaunchPass<'s>> {
        if self.captures.any() && self.driver.is_capturing(stream) {
            return Outcome::Bypassed(Bypass::Capture);
        }
        let (mut may_renew_early, mut waited, mut waits_since_ns) = (true, false, None);
        if self.returns_early() && self.bypass_reason().is_none() {
            pass = self.wait_for_commands(stream, thread, pass);
        }
        loop {
            if let Some(reason) = self.bypass_reason() {
                return Outcome::Bypassed(reason);
            }
            pass = self.postpone(thread, pass, &mut waits_since_ns);
            if self.is_open() {
                match self.note(stream, thread, may_renew_early, waits_since_ns) {
                    Ok(true) => {
                        if waited {
                            self.clock.record_step(HandOffStep::LaunchNoted);
                        }
                        return Outcome::Governed(pass);
                    }
                    // A burst that is longer than every quota would request grants without end.
                    Ok(false) => may_renew_early = false,
                    Err(reason) => return Outcome::Bypassed(reason),
                }
            }
            // A waiting launch does not count as in flight; otherwise the drain would wait for it.
            drop(pass);
            waited = true;
            match self.wait_for_grant(stream) {
                Ok(began_ns) => _ = waits_since_ns.get_or_insert(began_ns),
                Err(reason) => return Outcome::Bypassed(reason),
            }
            self.gate.enter(thread.shard());
            pass = LaunchPass { gate: &self.gate, shard: thread.shard() };
        }
    }

    /// Adds the launch's stream to the streams of the grant, and begins a burst if no work runs. `false` if the grant has ended, or is too
    /// short for the burst that begins. `waits_since_ns`: since when the launch has waited, if it has.
    fn note(
        &self,
        stream: Stream,
        thread: &ThreadState,
        may_renew_early: bool,
        waits_since_ns: Option<u64>,
    ) -> Result<bool, Bypass> {
        let (located, mut state) = self.locate(stream).ok_or(Bypass::NoContext)?;
        let now = self.clock.now_ns();
        // Read with the lock held: a wait that ends after this point sees the launch as later than itself.
        let epoch = self.gate.epoch();
        if state.phase != Phase::Open {
            return Ok(false);
        }
        let begins = !state.is_busy();
        if begins {
            if may_renew_early && self.should_renew_early(&mut state, now) {
                self.begin_drain(&mut state);
                return Ok(false);
            }
            state.begin_burst(now);
        }
        state.streams.note(located.context, stream, located.blocking, epoch);
        state.commands_ahead.launch_noted(located.context, stream);
        let (grant, burst) = (state.grant.number, state.grant.bursts);
        let measure = begins && !self.captures.any() && self.is_measurement_due(&mut state, now);
        let checks_each = self.admit(&mut state, now);
        self.record_call(&mut state, (thread.id(), CallKind::Work), (waits_since_ns, now));
        self.report_activity_and_unlock(state, now);
        if measure {
            self.measure(located.context, stream, grant, burst, now);
        }
        // During a capture, and before urgent work that may become due in the burst, every launch takes the slow path.
        if !self.captures.any() && !checks_each {
            thread.set_noted(self.gate.device(), stream.handle, epoch);
        }
        Ok(true)
    }

    /// The location of `stream`, and the locked state. Calls the driver without the lock, once for each stream that the program created.
    pub(super) fn locate(&self, stream: Stream) -> Option<(StreamLocation, MutexGuard<'_, State>)> {
        let state = self.lock();
        if let Some(located) = state.streams.located(stream) {
            return Some((located, state));
        }
        drop(state);
        let located = self.driver.locate(stream)?;
        Some((located, self.lock()))
    }

    /// Reports changed activity to the manager. `true` if the process became active, or may execute again: the caller then wakes the manager,
    /// without the lock.
    pub(super) fn report_activity(&self, state: &State, now: u64) -> bool {
        let (active, waits) = (state.is_active(), state.only_waits());
        // All writers hold the lock, so an atomic exchange is not needed.
        let was_active = self.reported_active.load(Relaxed);
        if was_active != active {
            self.reported_active.store(active, Relaxed);
            self.link.set_activity(active, now);
        }
        let waited = self.reported_waits.load(Relaxed);
        if waited != waits {
            self.reported_waits.store(waits, Relaxed);
            self.link.report_waits(waits.then_some(now));
        }
        active && (!was_active || waited && !waits)
    }

    /// Reports to the manager whether several contexts have work at the same time. Only the tracker calls it: it is about milliseconds.
    pub(super) fn report_contexts(&self, state: &State, now: u64) {
        let at_once = state.streams.has_dirty_contexts();
        if self.reported_contexts.swap(at_once, Relaxed) != at_once {
            self.link.report_contexts_at_once(at_once.then_some(now));
        }
    }

    /// Reports changed activity to the manager, and wakes it if the process became active or may execute again.
    pub(super) fn report_activity_and_unlock(&self, state: MutexGuard<'_, State>, now: u64) {
        let became_active = self.report_activity(&state, now);
        drop(state);
        if became_active {
            self.link.wake_manager();
        }
    }

    /// Whether the burst that begins would run past the deadline and would fit into a new quota.
    fn should_renew_early(&self, state: &mut State, now: u64) -> bool {
        if state.grant.is_unlimited() {
            return false;
        }
        let predicted_ms = state.burst.predict_single(now);
        let left_ms = self.link.deadline_ns().saturating_sub(now) as f64 / 1e6;
        // If no other client waits, the manager extends the deadline.
        self.link.contended() && predicted_ms >= left_ms && predicted_ms < state.grant.quota_ms
    }

    /// Whether events are to measure the burst that begins. If so, the next measurement is due later.
    fn is_measurement_due(&self, state: &mut State, now: u64) -> bool {
        if state.grant.is_unlimited() {
            // If the GPU alternates by default slices, the time between the events contains time of other clients. The manager
            // then charges a part of the whole duration.
            let contenders = self.link.critical_contenders().filter(|_| self.link.takes_gpu()).unwrap_or(0);
            let is_due = state.sampling.is_due(contenders, now);
            if is_due {
                state.next_mark_end_ns = now;
            }
            return is_due;
        }
        let is_due = state.grant.bursts == 1 || now >= state.next_measure_ns;
        if is_due {
            state.next_measure_ns = now + MEASURE_INTERVAL_NS;
        }
        is_due
    }

    /// Records an event at the begin of a burst of the grant.
    fn measure(&self, context: u64, stream: Stream, grant: u64, burst: u64, now: u64) {
        let Some(mark) = self.driver.mark(context, stream) else { return };
        let mut state = self.lock();
        let fresh = Measured { mark, at_ns: now, burst };
        let unused = if (state.grant.number, state.grant.bursts) == (grant, burst) {
            state.grant.measured.replace(fresh)
        } else {
            Some(fresh)
        };
        drop(state);
        if let Some(unused) = unused {
            self.driver.discard(unused.mark);
        }
    }

    /// Waits until a grant is open for a launch on `stream`. Returns when the wait began; `Err` if the launch is to bypass.
    fn wait_for_grant(&self, stream: Stream) -> Result<u64, Bypass> {
        let began = self.clock.now_ns();
        let mut state = self.lock();
        state.waiting_launches += 1;
        let result = loop {
            if let Some(reason) = self.bypass_reason() {
                break Err(reason);
            }
            state = match state.phase {
                Phase::Open if self.is_open() => break Ok(began),
                Phase::Open => {
                    self.check_counter();
                    if self.is_open() {
                        break Ok(began);
                    }
                    self.begin_drain(&mut state);
                    state
                }
                Phase::Draining => {
                    if state.drain_stalled
                        || self.clock.now_ns().saturating_sub(began) >= self.settings.stall_ns
                    {
                        state.drain_stalled = true;
                        break Err(Bypass::DrainStalled);
                    }
                    state = self.mark_own_stream(state, stream);
                    if state.phase == Phase::Draining { self.wait_for_drain(state) } else { state }
                }
                Phase::Closed => {
                    self.request_grant(&mut state, None);
                    state
                }
                Phase::Requested if !state.is_answer_awaited => self.read_answer(state),
                Phase::Requested | Phase::Detached | Phase::Lost { .. } => {
                    self.launch_waiters.wait(state).unwrap_or_else(PoisonError::into_inner)
                }
            };
        };
        state.waiting_launches -= 1;
        result
    }

    /// Records an event behind the work of `stream`, if that is the calling thread's default stream and a capture is open. The drain waits
    /// for such an event, which no other thread can record.
    fn mark_own_stream<'s>(&'s self, state: MutexGuard<'s, State>, stream: Stream) -> MutexGuard<'s, State> {
        if stream.kind != StreamKind::PerThread || !self.captures.any() {
            return state;
        }
        drop(state);
        // If the lock is taken, a context or a stream is about to end, which may wait for this launch. The next check tries again.
        if let Ok(_handles) = self.handles_lock.try_lock() {
            let lacks_event = |used: &&UsedStream| used.stream == stream && !used.is_reachable_in_capture();
            let used = self.lock().streams.all().iter().find(lacks_event).copied();
            if let Some(used) = used {
                self.mark_tail(used.context, used.stream);
            }
        }
        self.lock()
    }

    /// Waits for the drain in progress, for at most [`STALL_CHECK`].
    fn wait_for_drain<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let woken = self.launch_waiters.wait_timeout(state, STALL_CHECK);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Requests a grant, in one write with the report of the last grant if there is one.
    pub(super) fn request_grant(&self, state: &mut State, used: Option<GrantUsage>) {
        let now = self.clock.now_ns();
        if self.is_silent(now) {
            return self.handle_loss(state, LinkError::Silent);
        }
        let next_burst_ms = state.next_burst_ms.take().unwrap_or_else(|| state.predict_full_burst(now));
        let request = GrantRequest { overuse_ms: state.overuse_ms, next_burst_ms };
        // The manager causes the pause from here to the grant, so it is no property of the program.
        state.window.interrupt();
        state.overuse_ms = 0.0;
        match self.link.send(used, Some(request)) {
            Ok(()) => (state.phase, state.requested_ns) = (Phase::Requested, now),
            Err(error) => self.handle_loss(state, error),
        }
    }

    /// Reads the manager's answer for all waiting threads, without the lock.
    fn read_answer<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        state.is_answer_awaited = true;
        drop(state);
        let answer = self.link.receive(&|| self.prepare_launch());
        self.clock.record_step(HandOffStep::GrantRead);
        let mut state = self.lock();
        state.is_answer_awaited = false;
        match answer {
            // The connection was lost and replaced in the meantime, so the answer belongs to an abandoned request.
            _ if state.phase != Phase::Requested => {}
            Ok(quota_ms) => {
                self.open_grant(&mut state, quota_ms);
                self.clock.record_step(HandOffStep::GateOpened);
            }
            Err(error) => self.handle_loss(&mut state, error),
        }
        self.launch_waiters.notify_all();
        state
    }

    /// Uses the records of the predictors, which the launch is about to use: after 50 ms they are in no cache. Calls no driver: while the
    /// launch waits, another thread may end a stream or a context, or begin a capture.
    fn prepare_launch(&self) {
        let now = self.clock.now_ns();
        let _prediction = self.lock().predict_full_burst(now);
    }

    /// Begins a grant.
    pub(super) fn open_grant(&self, state: &mut State, quota_ms: f64) {
        // Of a grant that was lost. The tracker returns it.
        state.orphaned_marks.extend(state.grant.measured.take().map(|stale| stale.mark));
        let number = state.grant.number + 1;
        let now = self.clock.now_ns();
        state.grant = Grant {
            number,
            deadline_ns: self.link.deadline_ns(),
            quota_ms,
            idle_since_ns: Some(now),
            ..Default::default()
        };
        state.phase = Phase::Open;
        state.next_burst_ms = None;
        self.counters.grants.fetch_add(1, Relaxed);
        self.gate.open();
        self.wake_tracker_soon(state, now);
    }

    /// Ends the grant: closes the launch gate and leaves the rest to the tracker.
    pub(super) fn begin_drain(&self, state: &mut State) {
        self.gate.close();
        self.refresh_deadline(state);
        state.phase = Phase::Draining;
        state.drain_stalled = false;
        self.wake_tracker_locked(state);
    }
}
