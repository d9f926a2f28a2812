//! The stream-gate word on the grant page, with which the manager requests and closes gates.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use sluice_comm::page::grant::GATE;
use sluice_hook_core::platform::TokenLink;
use sluice_sys::futex;

use super::super::address::Address;
use super::TokenConnection;

/// Pause before a thread is woken again that may not have waited yet.
const WAKE_INTERVAL: Duration = Duration::from_millis(1);

impl TokenConnection {
    /// Reports what this process's stream gates stop ([`page::report::GATES_HOST`], [`page::report::GATES_DEVICE`] or 0).
    pub(crate) fn report_stream_gates(&self, gates: u64) {
        if let Some(report) = self.report_view() {
            report.set_gates(gates);
        }
    }

    /// Announces a request at `at_ns`, if this process is latency-critical: the manager then closes other clients' stream gates.
    pub(crate) fn announce_request(&self, at_ns: u64) {
        if self.critical_contenders().is_some()
            && let Some(report) = self.report_view()
        {
            report.announce(self.presence.clock.to_managers(at_ns));
            self.wake_manager();
        }
    }

    /// The word with which the manager requests and closes stream gates; `None` if the manager has no such word.
    pub(crate) fn stream_gate_word(&self) -> Option<&'static AtomicU64> {
        if !self.attached.load(Acquire) || matches!(self.address, Address::Tcp(..)) {
            return None;
        }
        // SAFETY: the pointer is the static blank page or that of a page that is mapped and never unmapped.
        unsafe { &*self.grant.load(Acquire) }.get(GATE)
    }

    /// Waits until the value of the gate word is not `value` any more, the connection has other pages, or the time is over. One thread at a
    /// time.
    pub(crate) fn wait_for_gate_change(
        &self,
        gate: &'static AtomicU64,
        value: u32,
        limit: Duration,
    ) -> futex::Wake {
        self.awaited_gate.store(std::ptr::from_ref(gate).cast_mut(), SeqCst);
        let is_current = self.stream_gate_word().is_some_and(|current| std::ptr::eq(current, gate));
        let waited =
            if is_current { futex::wait_low(gate, value, Some(limit)) } else { futex::Wake::Changed };
        self.awaited_gate.store(std::ptr::null_mut(), SeqCst);
        waited
    }

    /// Ends the wait for the gate word of a page that was replaced: its manager writes it no more.
    pub(super) fn end_wait_for(&self, gate: &AtomicU64) {
        while std::ptr::eq(self.awaited_gate.load(SeqCst), gate) && futex::wake_low(gate, u32::MAX) == 0 {
            // The thread has not begun to wait yet, or has just been woken.
            std::thread::sleep(WAKE_INTERVAL);
        }
    }
}
