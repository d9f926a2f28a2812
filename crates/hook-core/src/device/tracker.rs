//! The tracker: one thread that keeps the connection, ends grants at their deadline, and ends them early when idle.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use super::Device;
use super::state::{Phase, State};
use crate::outcome::Bypass;
use crate::platform::{Clock, Driver, LinkError, TokenLink};

/// First and longest pause between attempts to connect.
const RETRY_NS: (u64, u64) = (20_000_000, 1_000_000_000);

/// How often a quiet connection is looked at: a manager that restarts must learn soon what we hold.
const ALIVE_NS: u64 = 250_000_000;

/// For how long nobody is asked whether the program is idle while threads of it wait for the GPU, under a standing grant: longer than a
/// request.
const UNASKED_NS: u64 = 20_000_000;

/// How often a holder looks whether others have begun to wait.
const UNCONTENDED_LOOK_NS: u64 = 2_000_000;

/// How often the time between two looks at a standing grant without work is doubled: to 8 ms.
const LONGEST_LOOK: u32 = 2;

/// Idle for this long, the token is given back though nobody waits: time held counts against the promise.
const UNCONTENDED_IDLE_NS: u64 = 20_000_000;

/// What the tracker has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Nothing before this time, unless it is woken.
    At(u64),
    /// Look again at once.
    Immediately,
}

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Tracks until `stop` says so. `between` is called before each pause.
    pub fn run_tracker(&self, stop: impl Fn() -> bool, between: impl Fn()) {
        while !stop() {
            match self.track() {
                NextStep::Immediately => {}
                NextStep::At(at) => {
                    between();
                    self.sleep_until(at);
                }
            }
        }
    }

    fn sleep_until(&self, at: u64) {
        let state = self.lock();
        let for_ns = at.saturating_sub(self.clock.now_ns());
        if state.tracker_woken || for_ns == 0 {
            return;
        }
        let woken = self.tracker_wakeup.wait_timeout(state, Duration::from_nanos(for_ns));
        drop(woken.unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets the tracker look again at once: there is something to announce, or the connection may have broken.
    pub fn wake_tracker(&self) {
        let mut state = self.lock();
        self.wake_tracker_locked(&mut state);
    }

    /// Lets the tracker look again at once, whether it sleeps already or not yet.
    pub(super) fn wake_tracker_locked(&self, state: &mut State) {
        state.tracker_woken = true;
        self.tracker_wakeup.notify_one();
    }

    /// One step of the tracker.
    pub fn track(&self) -> NextStep {
        let now = self.clock.now_ns();
        let mut state = self.lock();
        if std::mem::take(&mut state.tracker_woken) {
            // The connection may have broken.
            state.next_liveness_ns = 0;
        }
        if matches!(state.phase, Phase::Closed | Phase::Asking | Phase::Open)
            && let Err(error) = self.link.announce()
        {
            self.handle_loss(&mut state, error);
            return NextStep::Immediately;
        }
        match state.phase {
            Phase::Detached => self.connect(state),
            Phase::Lost { retry_ns } if now >= retry_ns => self.connect(state),
            Phase::Lost { retry_ns } => NextStep::At(retry_ns),
            Phase::Draining => {
                drop(state);
                self.drain();
                NextStep::Immediately
            }
            Phase::Asking => NextStep::At(now + ALIVE_NS),
            Phase::Closed => self.check_alive(&mut state, now),
            Phase::Open if !self.is_open() => {
                self.begin_drain(&mut state);
                NextStep::Immediately
            }
            Phase::Open if state.grant.is_unlimited() => {
                self.link.report_busy(state.total_busy_ns);
                drop(state);
                self.poll_unlimited_grant(now)
            }
            Phase::Open => {
                drop(state);
                self.poll_for_idleness(now)
            }
        }
    }

    fn check_alive(&self, state: &mut State, now: u64) -> NextStep {
        if !self.link.is_alive() {
            self.handle_loss(state, LinkError::Gone { errno: 0 });
            return NextStep::Immediately;
        }
        NextStep::At(now + ALIVE_NS)
    }

    /// A standing grant is held: whether there is work is for others to know, if there are others. That work has begun whoever submits it
    /// says himself, so without any there is less and less to be found out.
    fn poll_unlimited_grant(&self, now: u64) -> NextStep {
        // While a thread waits for the GPU the process counts as busy anyway, and a question would have to share the driver's locks with
        // the wait. It may wait for something else, though, and what is used is counted.
        if self.has_short_wait(now) {
            self.lock().last_launches = self.gate.launches();
        } else {
            self.query_idle(now);
        }
        self.expire_polling(now);
        let mut state = self.lock();
        state.idle_polls = if state.is_active() { 0 } else { state.idle_polls.saturating_add(1) };
        let look = match self.link.contenders() {
            0 => UNCONTENDED_IDLE_NS,
            _ => UNCONTENDED_LOOK_NS << state.idle_polls.saturating_sub(1).min(LONGEST_LOOK),
        };
        if now >= state.next_liveness_ns {
            state.next_liveness_ns = now + ALIVE_NS;
            if self.check_alive(&mut state, now) == NextStep::Immediately {
                return NextStep::Immediately;
            }
        }
        NextStep::At(state.next_liveness_ns.min(now + look))
    }

    /// Whether threads have been waiting for the GPU, one or the other of them, for no longer than [`UNASKED_NS`].
    fn has_short_wait(&self, now: u64) -> bool {
        let mut state = self.lock();
        if state.blocked_threads == 0 {
            state.blocked_since_ns = None;
            return false;
        }
        now.saturating_sub(*state.blocked_since_ns.get_or_insert(now)) < UNASKED_NS
    }

    /// A grant is held and its deadline ahead: ends it if the program has been idle, sooner if others wait.
    fn poll_for_idleness(&self, now: u64) -> NextStep {
        let contended = self.link.contended();
        self.query_idle(now);
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return NextStep::Immediately;
        }
        self.refresh_deadline(&mut state);
        if state.grant.is_unlimited() {
            return NextStep::Immediately;
        }
        self.stop_polling(&mut state, now);
        let idle_for = state.grant.idle_since_ns.map_or(0, |since| now.saturating_sub(since));
        let give_back = std::mem::take(&mut state.grant.return_at_once);
        let patience =
            if contended { self.settings.idle_ns } else { UNCONTENDED_IDLE_NS.max(self.settings.idle_ns) };
        let idle = !state.is_busy() && (contended && give_back || idle_for >= patience);
        if idle && state.accepts_yield && state.waiting_launches == 0 {
            self.begin_drain(&mut state);
            return NextStep::Immediately;
        }
        let look =
            if contended { self.settings.idle_ns } else { UNCONTENDED_LOOK_NS.max(self.settings.idle_ns) };
        NextStep::At(state.grant.deadline_ns.min(now + look))
    }

    /// Asks the driver whether a burst that no host wait has ended is over. Launches since the last look say it is not.
    fn query_idle(&self, now: u64) {
        let launches = self.gate.launches();
        let _handles = self.handles_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        let quiet = std::mem::replace(&mut state.last_launches, launches) == launches;
        // A launch inside the driver may be held there before anything is in its stream: by a full queue, or a group that is stopped.
        if !quiet
            || !state.is_busy()
            || self.submitting_ungated.load(Acquire) > 0
            || self.captures.any()
            || self.gate.in_flight()
        {
            return;
        }
        let epoch = self.gate.next_epoch();
        let streams: Vec<_> = state.streams.all().iter().filter(|used| used.is_dirty()).copied().collect();
        drop(state);
        let all_idle =
            streams.iter().all(|used| self.driver.is_idle(used.context, used.stream) == Some(true));
        if !all_idle {
            return;
        }
        let mut state = self.lock();
        for used in streams {
            state.streams.finished(crate::streams::WaitTarget::Stream(used.context, used.stream), epoch);
        }
        self.end_burst_if_clean(&mut state, now, None);
    }

    /// A manager moves the deadline while nobody else waits; where it took the grant back there is none.
    pub(super) fn refresh_deadline(&self, state: &mut State) {
        match self.link.deadline_ns() {
            0 => {}
            at => state.grant.deadline_ns = at,
        }
    }

    fn connect(&self, state: std::sync::MutexGuard<'_, State>) -> NextStep {
        drop(state);
        let attached = self.link.connect();
        let mut state = self.lock();
        let pause = match attached {
            Ok(attached) => {
                self.gate.set_deadline_in_ticks(attached.deadline_in_ticks);
                state.accepts_yield = attached.accepts_yield;
                state.retry_wait_ns = 0;
                state.overuse_ms = 0.0;
                self.set_bypass(None);
                state.phase = Phase::Closed;
                // Its page is a new one.
                state.reported_active = false;
                self.report_activity(&mut state, self.clock.now_ns());
                if self.link.deadline_ns() == u64::MAX {
                    self.open_grant(&mut state, f64::INFINITY);
                }
                NextStep::Immediately
            }
            Err(error) => {
                self.handle_loss(&mut state, error);
                NextStep::Immediately
            }
        };
        self.launch_waiters.notify_all();
        pause
    }

    /// The connection is gone: closes the gate, and lets launches pass unless they are to be held.
    pub(super) fn handle_loss(&self, state: &mut State, error: LinkError) {
        self.gate.close();
        self.link.disconnect();
        let now = self.clock.now_ns();
        self.stop_polling(state, now);
        state.end_burst(now, None);
        state.retry_wait_ns = (state.retry_wait_ns * 2).clamp(RETRY_NS.0, RETRY_NS.1);
        state.phase = Phase::Lost { retry_ns: now + state.retry_wait_ns };
        if !self.link.fail_closed().unwrap_or(self.settings.fail_closed) {
            self.set_bypass(Some(match error {
                LinkError::NotAdmitted { .. } => Bypass::NotAdmitted,
                LinkError::Gone { .. } | LinkError::Malformed => Bypass::ManagerGone,
            }));
        }
        self.launch_waiters.notify_all();
        self.wake_tracker_locked(state);
    }
}
