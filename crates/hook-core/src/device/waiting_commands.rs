//! Commands that need no grant and may take long: host functions, copies, waits for a value in memory.
//!
//! A program that synchronizes with such a command waits for it, and its kernels have ended. The hook records an event before the
//! command. When the GPU has reached the event, the tracker returns the grant, although the stream still has work.
//!
//! The hook records the event only while another client waits, or has worked in the last 100 ms. If the program submits a launch behind
//! the command, the process keeps the grant: the hook could not hold that launch back when the command ends.
//!
//! If nothing else of the process runs, a launch behind such a command waits until the command has ended, and only then needs a grant.
//! Meanwhile the tracker returns the grant as that of an idle process.

use super::state::Phase;
use super::{Device, LaunchPass};
use crate::platform::{Clock, Driver, Stream, TokenLink};
use crate::thread_state::ThreadState;

/// How long a launch waits for a command at most: a copy of some hundred MiB takes less. What takes longer may wait for the launching
/// thread itself, for example a host function or a value in memory.
const LONGEST_WAIT_NS: u64 = 100_000_000;

/// How long to sleep between two queries whether the command has ended.
const QUERY_INTERVAL_NS: u64 = 50_000;

/// The command for which launches of this process wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum CommandAhead {
    /// No command is known that a launch would stand behind.
    #[default]
    None,
    /// A command, at the begin of which its stream had no other work. No launch has been noted on the stream since.
    Of {
        /// The stream's context.
        context: u64,
        /// The stream.
        stream: Stream,
    },
    /// A command took longer than [`LONGEST_WAIT_NS`]: launches of this process wait for none any more.
    Never,
}

impl CommandAhead {
    /// Whether all of a stream's work is this command and commands behind it that need no grant.
    pub(super) fn is_all_of(self, context: u64, stream: Stream) -> bool {
        self == Self::Of { context, stream }
    }

    /// A launch was noted on this stream.
    pub(super) fn launch_noted(&mut self, context: u64, stream: Stream) {
        if self.is_all_of(context, stream) {
            *self = Self::None;
        }
    }
}

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Whether the caller has to call [`Self::begin_waiting_command`]. Takes no lock and cannot panic.
    #[inline]
    pub fn returns_early(&self) -> bool {
        self.link.deadline_ticks() != u64::MAX && self.link.contended()
    }

    /// The program is about to submit a command that needs no grant to `stream`.
    #[cold]
    pub fn begin_waiting_command(&self, stream: Stream) {
        // In a capture the command is only recorded.
        if self.captures.any() {
            return;
        }
        let Some((located, state)) = self.locate(stream) else { return };
        if !state.is_busy() {
            drop(state);
            return self.note_command_ahead(located.context, stream);
        }
        let used = state.streams.all().iter().find(|u| u.context == located.context && u.stream == stream);
        if state.phase != Phase::Open || !used.is_some_and(|used| used.is_dirty() && used.end().is_none()) {
            return;
        }
        // A thread that launches from here on notes the stream, and the event then does not count as behind its launch. A launch in flight
        // may not note it; this command may be a part of one, too.
        let (epoch, launches) = (self.gate.next_epoch(), self.gate.launches());
        drop(state);
        // A thread that ends a context holds the lock until the driver has ended the context's work, and that work may wait for this call.
        let Ok(_handles) = self.handles_lock.try_lock() else { return };
        // A thread that begins a capture from here on waits for the lock. The driver does not have what the hook has queued.
        if self.gate.in_flight() || self.captures.any() || self.driver.has_queued(located.context) {
            return;
        }
        let Some(mark) = self.driver.mark(located.context, stream) else { return };
        // By now this thread sees each launch that another thread began before it read the count.
        let unused = if self.gate.launches() != launches || self.gate.in_flight() {
            Some(mark)
        } else {
            self.lock().streams.set_end(located.context, stream, mark, epoch)
        };
        if let Some(unused) = unused {
            self.driver.discard(unused);
        }
    }

    /// Notes a command that is about to be submitted while no launch runs. What is in its stream already is unknown, so there must be nothing.
    fn note_command_ahead(&self, context: u64, stream: Stream) {
        let Ok(_handles) = self.handles_lock.try_lock() else { return };
        let is_alone = !self.captures.any() && self.driver.is_idle(context, stream) == Some(true);
        let mut state = self.lock();
        if is_alone && state.command_ahead != CommandAhead::Never {
            state.command_ahead = CommandAhead::Of { context, stream };
        }
    }

    /// Waits until the command has ended that a launch on `stream` would stand behind, if no launch of this process runs. Meanwhile the
    /// launch does not count as in flight.
    pub(super) fn wait_for_command<'s>(
        &'s self,
        stream: Stream,
        thread: &ThreadState,
        pass: LaunchPass<'s>,
    ) -> LaunchPass<'s> {
        let state = self.lock();
        let context = match state.command_ahead {
            CommandAhead::Of { context, stream: its } if its == stream && !state.is_busy() => context,
            _ => return pass,
        };
        drop(state);
        drop(pass);
        let began = self.clock.now_ns();
        while self.is_unfinished(context, stream) {
            if self.clock.now_ns().saturating_sub(began) >= LONGEST_WAIT_NS {
                self.lock().command_ahead = CommandAhead::Never;
                break;
            }
            self.clock.pause(QUERY_INTERVAL_NS);
        }
        self.gate.enter(thread.shard());
        LaunchPass { gate: &self.gate, shard: thread.shard() }
    }

    /// Whether a stream is known to have work. Once a capture is open, nothing is.
    fn is_unfinished(&self, context: u64, stream: Stream) -> bool {
        // A thread that ends a context holds the lock for as long as the context has work.
        let Ok(_handles) = self.handles_lock.try_lock() else { return true };
        !self.captures.any() && self.driver.is_idle(context, stream) == Some(false)
    }
}
