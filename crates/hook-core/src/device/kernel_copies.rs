//! Copies by a kernel beside other work of the process.
//!
//! A copy engine copies while kernels fill the multiprocessors, and a kernel waits for them. If one of those kernels waits for the copy, by
//! polling memory, neither would ever end. So the copy is made by a kernel only if all work of the process is ahead of it in its own stream.

use std::sync::atomic::Ordering::*;

use super::Device;
use super::state::Phase;
use crate::outcome::Bypass;
use crate::platform::{Clock, Driver, Stream, TokenLink};

impl<'p, D: Driver, L: TokenLink, C: Clock> Device<'p, D, L, C> {
    /// Whether this process may have work that is not in `stream`. Launches that other threads begin from here on do not count.
    pub fn may_have_work_besides(&self, stream: Stream) -> bool {
        // In this order: what is not in flight any more has been noted, or has bypassed.
        if self.gate.in_flight() || self.has_unknown_work.load(SeqCst) || self.bypass_reason().is_some() {
            return true;
        }
        let Some((located, state)) = self.locate(stream) else { return true };
        state.phase != Phase::Open
            || !state.orphaned_marks.is_empty()
            || state.streams.any_dirty_besides(located.context, stream)
    }

    /// Records that a launch bypasses the launch gate for this reason.
    pub(super) fn launch_bypasses(&self, reason: Bypass) {
        match reason {
            // It runs nothing.
            Bypass::Capture => {}
            _ => self.has_unknown_work.store(true, SeqCst),
        }
    }
}
