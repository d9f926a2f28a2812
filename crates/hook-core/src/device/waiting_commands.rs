//! Commands that need no grant and may take long: host functions, copies, waits for a value in memory.
//!
//! A program that synchronizes with such a command waits for it, and the GPU's multiprocessors are idle. An event before the command
//! shows when the work before it has ended. Then the grant is returned, although the stream is not idle.
//!
//! This is recorded only while another client waits, or has worked a moment ago. Work that the program submits behind the command keeps the grant: nobody
//! would hold it back when the command ends.

use super::Device;
use super::state::Phase;
use crate::platform::{Clock, Driver, Stream, TokenLink};

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Whether [`Self::begin_waiting_command`] is to be called. Takes no lock and cannot panic.
    #[inline]
    pub fn returns_early(&self) -> bool {
        self.link.deadline_ticks() != u64::MAX && self.link.contended()
    }

    /// A command that needs no grant is about to be submitted to `stream`.
    #[cold]
    pub fn begin_waiting_command(&self, stream: Stream) {
        // In a capture the command is only recorded.
        if self.captures.any() {
            return;
        }
        let Some((located, state)) = self.locate(stream) else { return };
        let used = state.streams.all().iter().find(|u| u.context == located.context && u.stream == stream);
        if state.phase != Phase::Open || !used.is_some_and(|used| used.is_dirty() && used.end().is_none()) {
            return;
        }
        // Launches from here on note their stream, so that the event does not count as behind them. One in flight may not: this command may
        // be a part of it, too.
        let (epoch, launches) = (self.gate.next_epoch(), self.gate.launches());
        drop(state);
        // A thread that ends a context holds the lock for as long as the context has work, which may wait for this call.
        let Ok(_handles) = self.handles_lock.try_lock() else { return };
        // A capture that begins from here on waits for the lock. What is in a queue of the hook is not in the driver yet.
        if self.gate.in_flight() || self.captures.any() || self.driver.has_queued(located.context) {
            return;
        }
        let Some(mark) = self.driver.mark(located.context, stream) else { return };
        // A launch that was submitting when its count was read is visible by now.
        let unused = if self.gate.launches() != launches || self.gate.in_flight() {
            Some(mark)
        } else {
            self.lock().streams.set_end(located.context, stream, mark, epoch)
        };
        if let Some(unused) = unused {
            self.driver.discard(unused);
        }
    }
}
