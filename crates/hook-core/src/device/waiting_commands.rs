//! Commands that need no grant and may take long: host functions, copies, waits for a value in memory.
//!
//! A program that synchronizes with such a command waits for it, and its kernels have ended. The hook records an event before the
//! command. When the GPU has reached the event, the tracker returns the grant, although the stream still has work. If the program submits a
//! launch behind the command, the process keeps the grant: the hook could not hold that launch back when the command ends.
//!
//! If nothing else of the process runs, a launch behind such a command waits until the command has ended, and only then needs a grant.
//! Meanwhile the tracker returns the grant as that of an idle process. The same holds while the grant drains: a launch would request the
//! next one for a kernel that stands behind the command. Its deadline may then pass before the command ends, and so on with each command.
//!
//! The hook does both only where a grant ends although the process could use it: another client waits or has worked in the last 100 ms, or
//! the client has a limit. A hardware-scheduled process keeps its unlimited grant. It reports that its work only waits, where its grant
//! would be returned otherwise: then it leaves its quantum to the others.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, TryLockError};

use super::state::{Phase, State};
use super::{Device, LaunchPass};
use crate::platform::{Clock, Driver, Stream, TokenLink};
use crate::thread_state::ThreadState;

/// How long a launch waits for a command at most: a copy of some hundred MiB takes less. A command that takes longer may wait for the
/// launching thread itself, for example a host function or a wait for a value.
const LONGEST_WAIT_NS: u64 = 100_000_000;

/// For how long launches wait for no command after one took longer: a program whose commands wait for its launches loses a hundredth. A
/// hardware-scheduled process may also have waited for its groups to be enabled, so its pauses begin with the time that it waited, and double
/// up to this while one follows another.
const PAUSE_NS: u64 = 10_000_000_000;

/// For how long a launch polls before it sleeps: small copies take some microseconds.
const POLLED_NS: u64 = 50_000;

/// How long to sleep between two queries whether the command has ended.
const QUERY_INTERVAL_NS: u64 = 50_000;

/// How long a command waits for the lock of the handles. The tracker holds it for some driver calls, and for longer if the system runs other
/// threads meanwhile. A thread that ends a context may hold it until this command has ended.
const HANDLES_TIMEOUT_NS: u64 = 10_000_000;

/// How long to sleep between two attempts to take that lock.
const HANDLES_INTERVAL_NS: u64 = 5_000;

/// The commands for which launches of this process wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CommandsAhead {
    /// A context and a stream of it. When such a command began in the stream, the stream had no other work. No launch has been noted on the
    /// stream since.
    of: Option<(u64, Stream)>,
    /// Until when launches wait for none, and how long that pause is.
    paused_until_ns: u64,
    pause_ns: u64,
}

impl CommandsAhead {
    /// Whether all of a stream's work is commands that need no grant.
    pub(super) fn are_all_of(&self, context: u64, stream: Stream) -> bool {
        self.of == Some((context, stream))
    }

    /// A launch was noted on this stream.
    pub(super) fn launch_noted(&mut self, context: u64, stream: Stream) {
        self.of.take_if(|of| *of == (context, stream));
    }

    /// The handle of this stream is not used any more.
    pub(super) fn stream_gone(&mut self, stream: Stream) {
        self.of.take_if(|(_, of)| *of == stream);
    }

    /// A context has ended.
    pub(super) fn context_gone(&mut self, context: u64) {
        self.of.take_if(|(of, _)| *of == context);
    }

    /// A launch has waited too long at `now`: it goes on, and the next ones wait for no command.
    fn pause(&mut self, now: u64, is_hardware_scheduled: bool) {
        let follows = self.pause_ns > 0 && now.saturating_sub(self.paused_until_ns) < PAUSE_NS;
        self.pause_ns = match (is_hardware_scheduled, follows) {
            (false, _) => PAUSE_NS,
            (true, false) => LONGEST_WAIT_NS,
            (true, true) => (2 * self.pause_ns).min(PAUSE_NS),
        };
        self.paused_until_ns = now.saturating_add(self.pause_ns);
        self.of = None;
    }

    /// The connection was lost: what launches do now is not noted.
    pub(super) fn connection_lost(&mut self) {
        self.of = None;
    }
}

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Whether the caller has to call [`Self::begin_waiting_command`]. Takes no lock and cannot panic.
    #[inline]
    pub fn returns_early(&self) -> bool {
        if self.link.deadline_ticks() == u64::MAX {
            return self.link.has_hardware_contenders();
        }
        self.link.contended() || self.link.limited()
    }

    /// The program is about to submit a command that needs no grant to `stream`. If `true`, [`Self::end_submission`] is to be called after the
    /// driver's call: the command was noted.
    #[cold]
    pub fn begin_waiting_command(&self, stream: Stream) -> bool {
        // In a capture the command is only recorded.
        if self.captures.any() {
            return false;
        }
        self.mark_launches_before(stream);
        self.note_command(stream)
    }

    /// Notes the command under an unlimited grant: a hardware-scheduled process has to be enabled for it.
    fn note_command(&self, stream: Stream) -> bool {
        let Some((located, mut state)) = self.locate(stream) else { return false };
        if state.phase != Phase::Open || !state.grant.is_unlimited() {
            return false;
        }
        let now = self.clock.now_ns();
        self.submitting_ungated.fetch_add(1, Relaxed);
        state.last_command_ns = now;
        state.streams.note_command(located.context, stream, located.blocking, self.gate.epoch());
        self.report_activity_and_unlock(state, now);
        true
    }

    /// Makes the command distinguishable from the launches before it, or notes that there are none.
    fn mark_launches_before(&self, stream: Stream) {
        let Some((located, state)) = self.locate(stream) else { return };
        let used = state.streams.all().iter().find(|u| u.context == located.context && u.stream == stream);
        let is_dirty = used.is_some_and(|used| used.is_dirty());
        let is_marked = used.is_some_and(|used| used.end().is_some());
        let is_draining = state.phase == Phase::Draining;
        let records = is_dirty && !is_marked && (is_draining || state.phase == Phase::Open);
        // While the grant drains, the program may know that the work of the stream has ended before the tracker does.
        let is_of_use = (!is_dirty || is_draining)
            && state.needs_grant_for_launch()
            && state.accepts_yield
            && !state.commands_ahead.are_all_of(located.context, stream)
            && self.clock.now_ns() >= state.commands_ahead.paused_until_ns;
        drop(state);
        // Before the event, which is work of the stream itself.
        if is_of_use {
            self.note_command_ahead(located.context, stream);
        }
        if records {
            self.record_end(located.context, stream);
        } else if is_draining {
            // The drain may be about to record its event behind the launches: see `Self::mark_all`.
            drop(self.lock_handles_briefly());
        }
    }

    /// Takes the lock of the handles, or nothing if another thread holds it for long: a thread that ends a context holds it until the driver
    /// has ended the context's work, and that work may wait for this call.
    fn lock_handles_briefly(&self) -> Option<MutexGuard<'_, ()>> {
        let began = self.clock.now_ns();
        loop {
            match self.handles_lock.try_lock() {
                Ok(handles) => return Some(handles),
                // The lock protects no data.
                Err(TryLockError::Poisoned(handles)) => return Some(handles.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            if self.clock.now_ns().saturating_sub(began) >= HANDLES_TIMEOUT_NS {
                return None;
            }
            self.clock.pause(HANDLES_INTERVAL_NS);
        }
    }

    /// Records an event behind the launches of a stream, before a command is submitted.
    fn record_end(&self, context: u64, stream: Stream) {
        // A thread that launches from here on notes the stream, and the event then does not count as behind its launch. A launch in flight
        // may not note it; this command may be a part of one, too.
        let (epoch, launches) = (self.gate.next_epoch(), self.gate.launches());
        let Some(_handles) = self.lock_handles_briefly() else { return };
        // A thread that begins a capture from here on waits for the lock. The driver does not have what the hook has queued.
        if self.gate.in_flight() || self.captures.any() || self.driver.has_queued(context) {
            return;
        }
        let Some(mark) = self.driver.mark(context, stream) else { return };
        // By now this thread sees each launch that another thread began before it read the count.
        let unused = if self.gate.launches() != launches || self.gate.in_flight() {
            Some(mark)
        } else {
            self.lock().streams.set_end(context, stream, mark, epoch)
        };
        if let Some(unused) = unused {
            self.driver.discard(unused);
        }
    }

    /// Notes a command that is about to be submitted while no launch runs, or while the grant of those that run drains. What is in its stream already is unknown, so there must be nothing.
    fn note_command_ahead(&self, context: u64, stream: Stream) {
        let Some(_handles) = self.lock_handles_briefly() else { return };
        let launches = self.gate.launches();
        // A launch in flight may not be in the stream yet.
        if self.captures.any() || self.gate.in_flight() || self.driver.is_idle(context, stream) != Some(true)
        {
            return;
        }
        let mut state = self.lock();
        // A launch that another thread has begun since then has been counted by now.
        if state.needs_grant_for_launch() && self.gate.launches() == launches && !self.gate.in_flight() {
            state.commands_ahead.of = Some((context, stream));
        }
    }

    /// Waits until the commands have ended that a launch on `stream` would stand behind, if no launch of this process runs or the grant of
    /// those that run drains. Meanwhile the launch does not count as in flight.
    pub(super) fn wait_for_commands<'s>(
        &'s self,
        stream: Stream,
        thread: &ThreadState,
        pass: LaunchPass<'s>,
    ) -> LaunchPass<'s> {
        let is_named = |state: &State| state.commands_ahead.of.is_some_and(|(_, of)| of == stream);
        if !is_named(&self.lock()) {
            return pass;
        }
        // Each context has a default stream of its own, with the same handle.
        let Some((located, state)) = self.locate(stream) else { return pass };
        if !self.is_first_behind_commands(&state, located.context, stream) {
            return pass;
        }
        drop(pass);
        let began = self.clock.now_ns();
        let mut state = state;
        state.launches_behind_commands += 1;
        self.report_activity_and_unlock(state, began);
        while self.is_unfinished(located.context, stream) {
            let now = self.clock.now_ns();
            let mut state = self.lock();
            // Another thread may have launched behind the commands meanwhile.
            if !self.is_first_behind_commands(&state, located.context, stream)
                || self.bypass_reason().is_some()
            {
                break;
            }
            if now.saturating_sub(began) >= LONGEST_WAIT_NS {
                let is_hardware_scheduled = state.grant.is_unlimited();
                state.commands_ahead.pause(now, is_hardware_scheduled);
                break;
            }
            drop(state);
            if now.saturating_sub(began) < POLLED_NS {
                self.clock.spin();
            } else {
                self.clock.pause(QUERY_INTERVAL_NS);
            }
        }
        // Reported with the launch.
        self.lock().launches_behind_commands -= 1;
        self.gate.enter(thread.shard());
        LaunchPass { gate: &self.gate, shard: thread.shard() }
    }

    fn is_first_behind_commands(&self, state: &State, context: u64, stream: Stream) -> bool {
        state.commands_ahead.are_all_of(context, stream) && state.needs_grant_for_launch()
    }

    /// Whether a stream may have work. While a capture is open it is not asked, and does not count as one with work.
    fn is_unfinished(&self, context: u64, stream: Stream) -> bool {
        // A thread that ends a context holds the lock for as long as the context has work.
        let Ok(_handles) = self.handles_lock.try_lock() else { return true };
        // A thread that has ended the stream or its context has taken it out before it released the lock.
        let is_known = self.lock().commands_ahead.are_all_of(context, stream);
        is_known && !self.captures.any() && self.driver.is_idle(context, stream) == Some(false)
    }
}
