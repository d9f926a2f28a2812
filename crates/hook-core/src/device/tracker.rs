//! The tracker: one thread that keeps the connection, ends grants at their deadline, and ends them early when the program is idle.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use super::Device;
use super::state::{Phase, State};
use crate::deadline_polling::Step;
use crate::lock;
use crate::platform::{Clock, Driver, LinkError, Mark, TokenLink};
use crate::streams::UsedStream;

/// First and longest pause between attempts to connect.
const RETRY_NS: (u64, u64) = (20_000_000, 1_000_000_000);

/// How often a silent manager's heartbeat is checked, to return under its control.
const SILENT_CHECK_NS: u64 = 50_000_000;

/// How often the tracker checks whether a thread has returned that read from a lost connection.
const READER_CHECK_NS: u64 = 1_000_000;

/// How often a quiet connection is checked: a restarted manager must learn soon what this process holds.
const LIVENESS_INTERVAL_NS: u64 = 250_000_000;

/// Under an unlimited grant, for how long the driver is not queried while threads of the program wait for the GPU. Longer than a request.
const SHORT_WAIT_NS: u64 = 20_000_000;

/// How often a holder checks whether other clients have begun to wait.
const UNCONTENDED_POLL_NS: u64 = 2_000_000;

/// Under an unlimited grant, for how long after a wait of the program has shown the end of a burst the program is expected to wait again.
const WAITS_NS: u64 = 20_000_000;

/// How often the interval between two polls of an unlimited grant is doubled while they are not needed: to 8 ms.
const MAX_POLL_DOUBLINGS: u32 = 2;

/// For how long after such a command the tracker polls as often as while work runs.
const COMMANDS_NS: u64 = 100_000_000;

/// How often a hardware-scheduled holder checks whether its launches have ended and only commands behind them are left.
const WAITS_POLL_NS: u64 = 500_000;

/// After this idle time the token is returned although no other client waits, because the time held counts against the request.
const UNCONTENDED_IDLE_NS: u64 = 20_000_000;

/// When the tracker takes its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// At this time, unless it is woken earlier.
    At(u64),
    /// At once.
    Immediately,
}

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Runs the tracker until `stop` returns true. `between` is called before each pause.
    pub fn run_tracker(&self, stop: impl Fn() -> bool, between: impl Fn()) {
        let mut is_prepared = false;
        while !stop() {
            match self.track() {
                NextStep::Immediately => {}
                NextStep::At(at) => {
                    between();
                    // After the first connection: the kernel takes milliseconds to prepare a process that has several threads.
                    if !std::mem::replace(&mut is_prepared, true) && self.clock.can_order_all_threads() {
                        self.gate.set_ordered_by_drain(true);
                    }
                    self.pause_until(at);
                }
            }
        }
    }

    pub(super) fn sleep_until(&self, at: u64) {
        let mut state = self.lock();
        let for_ns = at.saturating_sub(self.clock.now_ns());
        if state.tracker_woken || for_ns == 0 {
            return;
        }
        state.tracker_sleeps_until = Some(at);
        let woken = self.tracker_wakeup.wait_timeout(state, Duration::from_nanos(for_ns));
        woken.unwrap_or_else(PoisonError::into_inner).0.tracker_sleeps_until = None;
    }

    /// Makes the tracker take a step at once: there is something to announce, or the connection may be broken.
    pub fn wake_tracker(&self) {
        let mut state = self.lock();
        self.wake_tracker_locked(&mut state);
    }

    /// Makes the tracker take a step at once, whether it already sleeps or not.
    pub(super) fn wake_tracker_locked(&self, state: &mut State) {
        state.tracker_woken = true;
        // Without a sleeper the notification would be a system call for nothing.
        if state.tracker_sleeps_until.is_some() {
            self.tracker_wakeup.notify_one();
        }
    }

    /// Makes the tracker take a step within the idle time, and by the deadline of the grant. A waiting launch calls this when its grant has
    /// begun, and the wake-up of another thread costs it microseconds: a tracker that wakes by itself soon is left asleep.
    pub(super) fn wake_tracker_soon(&self, state: &mut State, now: u64) {
        let soon = now.saturating_add(self.settings.idle_ns).min(state.grant.deadline_ns);
        if state.tracker_sleeps_until.is_none_or(|until| until > soon) {
            self.wake_tracker_locked(state);
        }
    }

    /// One step of the tracker.
    pub fn track(&self) -> NextStep {
        let now = self.clock.now_ns();
        let mut state = self.lock();
        if std::mem::take(&mut state.tracker_woken) {
            // The connection may be broken.
            state.next_liveness_ns = 0;
        }
        if matches!(state.phase, Phase::Closed | Phase::Requested | Phase::Open)
            && let Err(error) = self.link.announce()
        {
            self.handle_loss(&mut state, error);
            return NextStep::Immediately;
        }
        if state.phase == Phase::Open {
            self.check_counter();
        }
        match state.phase {
            Phase::Detached => self.connect(state),
            Phase::Lost { retry_ns } if now < retry_ns => NextStep::At(retry_ns),
            Phase::Lost { .. } if state.is_answer_awaited => {
                // A new connection may get the descriptor's number, and the thread would read that connection's answers.
                if !self.is_silent(now) {
                    self.link.disconnect();
                }
                NextStep::At(now + READER_CHECK_NS)
            }
            Phase::Lost { .. } => self.connect(state),
            Phase::Draining => {
                drop(state);
                self.drain();
                NextStep::Immediately
            }
            Phase::Closed => self.check_alive(&mut state, now),
            Phase::Requested => match self.check_alive(&mut state, now) {
                NextStep::At(at) => NextStep::At(at.min(self.after_hand_off(&state, now))),
                NextStep::Immediately => NextStep::Immediately,
            },
            Phase::Open if !self.is_open() => {
                self.begin_drain(&mut state);
                NextStep::Immediately
            }
            Phase::Open if state.grant.is_unlimited() => {
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
            let error = if self.is_silent(now) { LinkError::Silent } else { LinkError::Gone };
            self.handle_loss(state, error);
            return NextStep::Immediately;
        }
        NextStep::At(now + LIVENESS_INTERVAL_NS)
    }

    /// When the tracker of a process that waits for a grant wakes to find it begun, so that the launch need not wake it.
    fn after_hand_off(&self, state: &State, now: u64) -> u64 {
        let mut polling = lock(&self.tracker_polling);
        let end = polling.end(self.link.hand_off_ns());
        match polling.look(state.requested_ns, now) {
            Step::SleepUntil(_) if now < end => end,
            Step::SleepUntil(at) => at,
            Step::Poll | Step::Sleep => u64::MAX,
        }
    }

    /// Whether the manager of the connection is silent. The launch path does not ask: while a grant is valid nothing depends on it.
    pub(super) fn is_silent(&self, now: u64) -> bool {
        self.link.presence_left_ns(now) == Some(0)
    }

    /// Treats a silent manager as lost. For the thread that recovers channel groups: the tracker may wait for work that does not run
    /// because the silent manager has disabled this process. `false` if the manager is not silent: waiting for the lock may take long.
    pub fn lose_silent_manager(&self) -> bool {
        let mut state = self.lock();
        let is_silent = self.is_silent(self.clock.now_ns());
        if is_silent && !matches!(state.phase, Phase::Detached | Phase::Lost { .. }) {
            self.handle_loss(&mut state, LinkError::Silent);
        }
        is_silent
    }

    /// Polls under an unlimited grant. The manager needs to know when work has ended only if there are contenders. Submitting threads report
    /// the begin of work themselves, and waiting threads its end. So the polls become rarer while nothing runs, and while the program waits
    /// for its work.
    fn poll_unlimited_grant(&self, now: u64) -> NextStep {
        // While a thread waits for the GPU the process counts as active anyway, and a query would contend with the wait for the driver's
        // locks. After a while the driver is queried all the same: the thread may wait for something else, and used time is counted.
        let seeks_waits = self.link.has_hardware_contenders() && self.lock().streams.any_command();
        if self.has_short_wait(now) && !seeks_waits {
            self.lock().last_launches = self.gate.launches();
        } else {
            self.query_idle(now);
        }
        self.expire_polling(now);
        let mut state = self.lock();
        self.expire_hold(&mut state, now);
        self.report_contexts(&state, now);
        state.follows_deadlines = self.link.is_latency_critical();
        self.expire_steps(&mut state, now);
        let waits = state.waited_ns.is_some_and(|at| now.saturating_sub(at) < WAITS_NS);
        // A process that only lingers becomes idle without another event.
        let uses_commands = now.saturating_sub(state.last_command_ns) < COMMANDS_NS;
        let is_needed = state.is_active() && (!waits || uses_commands) || state.holds_until_ns.is_some();
        state.needless_polls = if is_needed { 0 } else { state.needless_polls.saturating_add(1) };
        let poll_interval = match self.link.contenders() {
            0 => UNCONTENDED_IDLE_NS,
            _ if seeks_waits && state.is_busy() => WAITS_POLL_NS,
            _ => UNCONTENDED_POLL_NS << state.needless_polls.saturating_sub(1).min(MAX_POLL_DOUBLINGS),
        };
        if now >= state.next_liveness_ns {
            state.next_liveness_ns = now + LIVENESS_INTERVAL_NS;
            if self.check_alive(&mut state, now) == NextStep::Immediately {
                return NextStep::Immediately;
            }
        }
        let until = state.holds_until_ns.unwrap_or(u64::MAX);
        NextStep::At(state.next_liveness_ns.min(now + poll_interval).min(until))
    }

    /// Ends the activity of a process whose hold kernel was released between two bursts of work.
    pub fn hold_ended(&self) {
        self.expire_hold(&mut self.lock(), u64::MAX);
    }

    /// Ends the activity of a process whose hold kernel has ended.
    fn expire_hold(&self, state: &mut State, until: u64) {
        if state.holds_until_ns.take_if(|end| *end <= until).is_some() {
            self.report_activity(state, self.clock.now_ns());
        }
    }

    /// Whether threads of the program wait for the GPU, and have done so for less than [`SHORT_WAIT_NS`].
    fn has_short_wait(&self, now: u64) -> bool {
        let mut state = self.lock();
        if state.blocked_threads == 0 {
            state.blocked_since_ns = None;
            return false;
        }
        now.saturating_sub(*state.blocked_since_ns.get_or_insert(now)) < SHORT_WAIT_NS
    }

    /// Polls under a grant with a deadline ahead: ends it if the program has been idle, sooner if other clients wait.
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
        self.expire_hold(&mut state, now);
        let idle_for = state.grant.idle_since_ns.map_or(0, |since| now.saturating_sub(since));
        let return_at_once = std::mem::take(&mut state.grant.return_at_once);
        let unless_contended =
            |ns: u64| if contended { self.settings.idle_ns } else { ns.max(self.settings.idle_ns) };
        let idle = !state.is_busy()
            && (contended && return_at_once || idle_for >= unless_contended(UNCONTENDED_IDLE_NS));
        if idle && state.accepts_yield && state.waiting_launches == 0 {
            self.begin_drain(&mut state);
            return NextStep::Immediately;
        }
        NextStep::At(state.grant.deadline_ns.min(now + unless_contended(UNCONTENDED_POLL_NS)))
    }

    /// Queries the driver whether a burst has ended that no host wait has ended. Launches since the last poll mean that it has not.
    fn query_idle(&self, now: u64) {
        let launches = self.gate.launches();
        let _handles = lock(&self.handles_lock);
        self.discard_reached_orphans();
        let mut state = self.lock();
        let quiet = std::mem::replace(&mut state.last_launches, launches) == launches;
        // The driver may block a launch before any of it is in its stream: because a queue is full, or the channel group is disabled.
        if !quiet
            || !state.is_busy() && !state.streams.any_command()
            || self.submitting_ungated.load(Acquire) > 0
            || self.captures.any()
            || self.gate.in_flight()
        {
            return;
        }
        let epoch = self.gate.next_epoch();
        let has_work = |used: &&UsedStream| used.is_dirty() || used.has_command();
        let streams: Vec<_> = state.streams.all().iter().filter(has_work).copied().collect();
        drop(state);
        // A command that needs no grant may follow the end of the launches.
        let has_ended = |used: &UsedStream| used.end().is_some_and(|end| self.driver.is_reached(end));
        let is_idle = |used: &UsedStream| self.driver.is_idle(used.context, used.stream) == Some(true);
        let mut idle = Vec::with_capacity(streams.len());
        let all_ended = streams.iter().all(|used| {
            idle.push(is_idle(used));
            idle.last() == Some(&true) || !used.is_dirty() || has_ended(used)
        });
        if !all_ended || self.gate.launches() != launches || self.gate.in_flight() {
            // A launch that was submitting when its count was read is visible by now.
            return;
        }
        let mut state = self.lock();
        for (used, is_idle) in streams.into_iter().zip(idle) {
            if is_idle {
                state.streams.finished(crate::streams::WaitTarget::Stream(used.context, used.stream), epoch);
            } else {
                state.streams.launches_finished(used.context, used.stream, epoch);
            }
        }
        if state.is_busy() {
            self.end_burst_if_clean(&mut state, now, None);
        } else {
            self.report_activity(&state, now);
        }
        if !state.is_busy() {
            state.latency.found_idle(now);
        }
    }

    /// Returns the events on destroyed streams that the GPU has reached, unless commands of such a stream may still be queued.
    /// Called with the handles locked: nothing else removes events then, but the loss of the manager may add some.
    fn discard_reached_orphans(&self) {
        let orphans = self.lock().orphaned_marks.clone();
        let mut contexts: BTreeSet<u64> = orphans.iter().map(|mark| mark.context).collect();
        contexts.retain(|context| !self.driver.has_queued_of_destroyed(*context));
        let is_done = |mark: &Mark| contexts.contains(&mark.context) && self.driver.is_reached(*mark);
        let reached: Vec<_> = orphans.into_iter().filter(is_done).collect();
        if !reached.is_empty() {
            self.lock().orphaned_marks.retain(|mark| !reached.contains(mark));
            reached.into_iter().for_each(|mark| self.driver.discard(mark));
        }
    }

    /// Reads the deadline again: the manager extends it while no other client waits. 0 means that the manager took the grant back.
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
        match attached {
            Ok(attached) => {
                self.gate.set_deadline_in_ticks(attached.deadline_in_ticks);
                state.accepts_yield = attached.accepts_yield;
                state.retry_wait_ns = 0;
                state.overuse_ms = 0.0;
                self.set_bypass(None);
                state.phase = Phase::Closed;
                // A new page contains no activity. The manager may also have kept the page, with the activity of before the loss.
                let is_active = state.is_active();
                if self.reported_active.swap(is_active, Relaxed) || is_active {
                    self.link.set_activity(is_active, self.clock.now_ns());
                }
                if self.reported_waits.swap(false, Relaxed) {
                    self.link.report_waits(None);
                }
                if self.reported_contexts.swap(false, Relaxed) {
                    self.link.report_contexts_at_once(None);
                }
                self.link.report_slices(state.host_bound.report());
                if self.link.deadline_ns() == u64::MAX {
                    self.open_grant(&mut state, f64::INFINITY);
                }
            }
            Err(error) => self.handle_loss(&mut state, error),
        }
        self.launch_waiters.notify_all();
        NextStep::Immediately
    }

    /// Handles a lost connection: closes the launch gate and lets launches bypass, unless they are to be blocked. They always are while the
    /// manager has no room for this process: it would have more than its share.
    ///
    /// The connection to a silent manager is kept: its end shows that the manager has died, and its page when the manager runs again.
    pub(super) fn handle_loss(&self, state: &mut State, error: LinkError) {
        self.gate.close();
        let now = self.clock.now_ns();
        self.stop_polling(state, now);
        self.interrupt_steps(state);
        state.end_burst(now, None);
        let tails: Vec<_> = state.streams.take_tails().collect();
        state.orphaned_marks.extend(tails);
        state.commands_ahead.connection_lost();
        state.holds_until_ns = None;
        let wait_ns = if error == LinkError::Silent {
            SILENT_CHECK_NS
        } else {
            self.link.disconnect();
            state.retry_wait_ns = (state.retry_wait_ns * 2).clamp(RETRY_NS.0, RETRY_NS.1);
            state.retry_wait_ns
        };
        state.phase = Phase::Lost { retry_ns: now + wait_ns };
        let waits =
            error == LinkError::NoRoom || self.link.fail_closed().unwrap_or(self.settings.fail_closed);
        self.set_bypass(if waits { None } else { Some(error.bypass()) });
        self.launch_waiters.notify_all();
        self.wake_tracker_locked(state);
    }
}
