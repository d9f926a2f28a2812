//! Commands that need no grant and may take long: host functions, copies, waits for a value in memory.
//!
//! A program that synchronizes with such a command waits for it, and its kernels have ended. The hook records an event before the
//! command. When the GPU has reached the event, the tracker returns the grant, although the stream still has work.
//!
//! The hook records the event only while another client waits, or has worked in the last 100 ms. If the program submits a launch behind
//! the command, the process keeps the grant: the hook could not hold that launch back when the command ends.

use super::Device;
use super::state::Phase;
use crate::platform::{Clock, Driver, Stream, TokenLink};

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
}
