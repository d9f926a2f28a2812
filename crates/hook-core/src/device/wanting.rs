//! A launch that cannot pass at once: note it, or wait for a grant.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::state::{MEASURE_NS, Measured, Phase, State};
use super::{Device, Pass};
use crate::outcome::{Bypass, Outcome};
use crate::platform::{Ask, Clock, Driver, Located, Stream, TokenLink};
use crate::predictor::estimate_full_burst;
use crate::thread::Thread;

/// How often a waiting launch looks whether the drain has stalled.
const STALL_CHECK: Duration = Duration::from_millis(50);

/// What became of noting a launch.
enum Noted {
    /// It may be submitted.
    Yes,
    /// The grant ended meanwhile, or is too short for the burst that begins.
    NoGrant,
    /// There is no context to launch in.
    NoContext,
}

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Notes a launch that [`Self::launch_at_once`] could not let through, after waiting for a grant if there is none.
    #[cold]
    pub fn launch_slowly<'s>(
        &'s self,
        stream: Stream,
        thread: &Thread,
        mut pass: Pass<'s>,
    ) -> Outcome<Pass<'s>> {
        if self.captures.any() && self.driver.is_capturing(stream) {
            return Outcome::Bypassed(Bypass::Capture);
        }
        let mut may_ask_early = true;
        loop {
            if let Some(reason) = self.passing() {
                return Outcome::Bypassed(reason);
            }
            if self.is_open() {
                match self.note(stream, thread, may_ask_early) {
                    Noted::Yes => return Outcome::Governed(pass),
                    Noted::NoContext => return Outcome::Bypassed(Bypass::NoContext),
                    // A burst that no quota fits would ask for ever.
                    Noted::NoGrant => may_ask_early = false,
                }
            }
            // Who waits is not in the middle of a launch: the drain would wait for it.
            drop(pass);
            if let Err(reason) = self.wait_for_grant() {
                return Outcome::Bypassed(reason);
            }
            self.gate.enter(thread.shard());
            pass = Pass { gate: &self.gate, shard: thread.shard() };
        }
    }

    /// Enters the launch's stream among those the grant answers for, and the beginning of a burst.
    fn note(&self, stream: Stream, thread: &Thread, may_ask_early: bool) -> Noted {
        let Some((located, mut state)) = self.locate(stream) else { return Noted::NoContext };
        let now = self.clock.now_ns();
        // Read under the lock: a wait that ends later than this sees the launch as later than itself.
        let epoch = self.gate.epoch();
        if state.phase != Phase::Open {
            return Noted::NoGrant;
        }
        let begins = !state.is_busy();
        if begins {
            if may_ask_early && self.should_ask_early(&mut state, now) {
                self.begin_drain(&mut state);
                return Noted::NoGrant;
            }
            state.begin_burst(now);
        }
        let wakes = self.tell_activity(&mut state, now);
        state.streams.note(located.context, stream, located.blocking, epoch);
        let standing = state.grant.is_standing();
        let (grant, burst) = (state.grant.number, state.grant.bursts);
        let due = burst == 1 || now >= state.measure_ns;
        let measure = begins && due && !standing && !self.captures.any();
        if measure {
            state.measure_ns = now + MEASURE_NS;
        }
        drop(state);
        if wakes {
            self.link.ring(standing);
        }
        if measure {
            self.measure(located.context, stream, grant, burst, now);
        }
        // During a capture every launch has to be looked at.
        if !self.captures.any() {
            thread.remember(self.ordinal, stream.handle, epoch);
        }
        Noted::Yes
    }

    /// Where `stream` lives, and the state. The driver is asked without the lock, and once for each stream that the program created.
    pub(super) fn locate(&self, stream: Stream) -> Option<(Located, MutexGuard<'_, State>)> {
        let state = self.lock();
        if let Some(located) = state.streams.located(stream) {
            return Some((located, state));
        }
        drop(state);
        let located = self.driver.locate(stream)?;
        Some((located, self.lock()))
    }

    /// Tells the manager what has changed; `true` if it is to be rung for, without the lock.
    pub(super) fn tell_activity(&self, state: &mut State, now: u64) -> bool {
        let active = state.is_active();
        if std::mem::replace(&mut state.told_busy, active) == active {
            return false;
        }
        self.active.store(active, Relaxed);
        self.link.set_activity(active, now);
        active
    }

    /// Whether the burst that begins would run past the deadline and would fit into a fresh quota.
    fn should_ask_early(&self, state: &mut State, now: u64) -> bool {
        if state.grant.is_standing() {
            return false;
        }
        let predicted_ms = state.burst.predict_single(now);
        let left_ms = self.link.deadline_ns().saturating_sub(now) as f64 / 1e6;
        // Without anybody who waits the manager will move the deadline.
        self.link.contended() && predicted_ms >= left_ms && predicted_ms < state.grant.quota_ms
    }

    /// Marks the begin of a burst of the grant.
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

    /// Waits until a grant is open; `Err` if the launch is to pass without one.
    fn wait_for_grant(&self) -> Result<(), Bypass> {
        let began = self.clock.now_ns();
        let mut state = self.lock();
        state.wanting += 1;
        let result = loop {
            if let Some(reason) = self.passing() {
                break Err(reason);
            }
            state = match state.phase {
                Phase::Open if self.is_open() => break Ok(()),
                Phase::Open => {
                    self.begin_drain(&mut state);
                    self.wait(state)
                }
                Phase::Draining => {
                    if state.stalled || self.clock.now_ns().saturating_sub(began) >= self.settings.stall_ns {
                        state.stalled = true;
                        break Err(Bypass::DrainStalled);
                    }
                    self.wait(state)
                }
                Phase::Closed => {
                    self.ask(&mut state, None);
                    state
                }
                Phase::Asking if !state.reading => self.read_answer(state),
                Phase::Asking | Phase::Detached | Phase::Lost { .. } => {
                    self.wanting.wait(state).unwrap_or_else(PoisonError::into_inner)
                }
            };
        };
        state.wanting -= 1;
        result
    }

    /// Waits for the drain under way, looking up from time to time.
    fn wait<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let woken = self.wanting.wait_timeout(state, STALL_CHECK);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Asks for a grant, in one write with the report of the last one if there is one.
    pub(super) fn ask(&self, state: &mut State, used: Option<crate::platform::Used>) {
        let now = self.clock.now_ns();
        let (burst_ms, window_ms) = (state.burst.predict_merged(now), state.window.predict_merged(now));
        let ask =
            Ask { overuse_ms: state.overuse_ms, next_burst_ms: estimate_full_burst(burst_ms, window_ms) };
        // The pause from here to the grant is the manager's doing and says nothing about the program.
        state.window.interrupt();
        state.overuse_ms = 0.0;
        match self.link.send(used, Some(ask)) {
            Ok(()) => state.phase = Phase::Asking,
            Err(error) => self.lose(state, error),
        }
    }

    /// Waits for the answer on behalf of everybody, without the lock.
    fn read_answer<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        state.reading = true;
        drop(state);
        let answer = self.link.receive();
        let mut state = self.lock();
        state.reading = false;
        match answer {
            // The connection was lost and replaced meanwhile; the answer was to a question nobody asks any more.
            _ if state.phase != Phase::Asking => {}
            Ok(quota_ms) => self.open(&mut state, quota_ms),
            Err(error) => self.lose(&mut state, error),
        }
        self.wanting.notify_all();
        state
    }

    /// A grant begins.
    pub(super) fn open(&self, state: &mut State, quota_ms: f64) {
        let stale = state.grant.measured.take();
        let number = state.grant.number + 1;
        let now = self.clock.now_ns();
        state.grant = super::state::Grant {
            number,
            deadline_ns: self.link.deadline_ns(),
            quota_ms,
            idle_since_ns: Some(now),
            ..Default::default()
        };
        state.phase = Phase::Open;
        self.counters.grants.fetch_add(1, Relaxed);
        self.gate.open();
        self.call_tracker(state);
        if let Some(stale) = stale {
            self.driver.discard(stale.mark);
        }
    }

    /// The grant is over: closes the gate and leaves the rest to the tracker.
    pub(super) fn begin_drain(&self, state: &mut State) {
        self.gate.close();
        self.read_deadline(state);
        state.phase = Phase::Draining;
        state.stalled = false;
        self.call_tracker(state);
    }
}
