//! The rings: submission of orders, progress of streams, and notifications.

use super::{Gpu, GpuError};
use crate::client::link::has_hung_up;
use crate::wire::record::{Order, Record};
use sluice_sys::clock::initial_monotonic_ns;
use std::io;
use std::time::Duration;

impl Gpu {
    /// Puts an order into the ring. `claimed` is called with its ticket before the daemon can read it.
    pub(in crate::client) fn push(&self, slot: usize, order: Order, claimed: impl FnOnce(u64)) -> u64 {
        let record = Record { stamp: initial_monotonic_ns(), slot, order };
        let full = || {
            self.wake_daemon();
            self.region.wait_full();
            !has_hung_up(&self.liveness)
        };
        let ticket = self.region.push(&record, full, claimed);
        if self.region.has_followers(ticket) {
            self.wake_if_parked();
        }
        ticket
    }

    fn wake_daemon(&self) {
        use std::io::Write;
        // The write fails only if the counter is at its limit, and then the daemon is awake anyway.
        let _ = (&self.wakeup).write(&1u64.to_ne_bytes());
    }

    pub(in crate::client) fn wake_if_parked(&self) {
        if self.region.is_parked() {
            self.wake_daemon();
        }
    }

    /// Whether command `seq` of a stream has completed. Does not wait; wakes the daemon if the command may be due.
    pub(in crate::client) fn query(&self, slot: usize, seq: u64, ticket: u64) -> bool {
        if self.region.completed(slot) < seq {
            let known = self.region.is_read(ticket) && initial_monotonic_ns() < self.region.next_event_ns();
            if !known {
                self.wake_if_parked();
            }
            return self.region.completed(slot) >= seq;
        }
        true
    }

    pub(in crate::client) fn wait(&self, slot: usize, seq: u64) -> Result<(), GpuError> {
        if self.region.completed(slot) >= seq {
            return Ok(());
        }
        self.push(slot, Order::Watch { seq }, |_| {});
        self.wake_if_parked();
        /// Interval at which a waiting thread checks whether the daemon is alive.
        const LIVENESS_CHECK: Duration = Duration::from_millis(200);
        loop {
            let seen = self.region.completed(slot);
            if seen >= seq {
                return Ok(());
            }
            self.region.wait_completed(slot, seen, LIVENESS_CHECK);
            if self.region.completed(slot) < seq && has_hung_up(&self.liveness) {
                return Err(GpuError::Gone(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }

    /// Waits while this process is locked by another one.
    pub fn wait_unlocked(&self) {
        while self.region.is_locked() && self.is_connected() {
            self.region.wait_unlocked(Duration::from_millis(200));
        }
    }

    /// Whether the daemon is connected.
    pub fn is_connected(&self) -> bool {
        !has_hung_up(&self.liveness)
    }

    /// A number that changes when a watched command has completed.
    pub fn notified(&self) -> u64 {
        self.region.notified()
    }

    /// Waits until [`notified`](Self::notified) differs from `seen`. Returns `false` if the daemon has ended.
    pub fn wait_notified(&self, seen: u64) -> bool {
        while self.region.notified() == seen {
            self.region.wait_notified(seen, Duration::from_millis(200));
            if has_hung_up(&self.liveness) {
                return false;
            }
        }
        true
    }

    /// Wakes the threads that wait for [`notified`](Self::notified) to change.
    pub fn notify(&self) {
        self.region.wake_notified();
    }

    /// Applies the effects of everything that has completed. A thread that has observed a completion calls this
    /// function before it reports the completion.
    pub fn apply_effects(&self) {
        self.effects.apply_completed(&self.region);
    }
}
