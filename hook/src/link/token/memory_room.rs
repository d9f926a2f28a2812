//! What the pages say of memory that may leave the GPU.

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use sluice_comm::page::{MovableMemory, ReportView};
use sluice_hook_core::lock;
use sluice_hook_core::platform::TokenLink;
use sluice_sys::clock::monotonic_ns;
use sluice_sys::futex;

use super::{TokenConnection, Words};

impl TokenConnection {
    /// Whether a manager decides where the memory of this process is. Without one the memory returns.
    pub(crate) fn decides_memory(&self) -> bool {
        self.attached.load(Acquire) && self.presence_left_ns(monotonic_ns()) != Some(0)
    }

    /// Bytes of movable memory that this process may have on the GPU; `None`: the manager has not decided.
    pub(crate) fn memory_room(&self) -> Option<u64> {
        self.grant_view().memory_room()
    }

    /// Whether memory is to move in small pieces with pauses, for a latency-critical client.
    pub(crate) fn paces_moves(&self) -> bool {
        self.decides_memory() && self.grant_view().paced_moves()
    }

    /// Whether the manager says that memory of other clients moves, which keeps the copy engines busy. One load; the manager may be gone.
    #[inline]
    pub(crate) fn memory_moves(&self) -> bool {
        self.grant_view().memory_moves()
    }

    /// Sleeps until the manager decides anew, at most for `timeout`.
    pub(crate) fn wait_for_memory_room(&self, timeout: Duration) {
        let word = self.grant_view().memory_room_futex();
        let seen = u32::try_from(word.load(Relaxed) & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        if futex::wait_low(word, seen, Some(timeout)) == futex::Wake::Refused {
            std::thread::sleep(timeout);
        }
    }

    /// Reports the movable memory of this process, and wakes the manager if that cannot wait for its next round.
    pub(crate) fn report_memory(&self, memory: MovableMemory) {
        let mut last = lock(&self.movable_memory);
        *last = memory;
        if self.report_view().is_some_and(|report| report.report_movable_memory(memory)) {
            self.wakeup.signal();
        }
    }

    /// Reports on this page from here on. It says from the beginning where the memory is: a copy may be in progress, and no further report
    /// comes before its end.
    pub(super) fn begin_memory_reports(&self, page: &'static Words) {
        let last = lock(&self.movable_memory);
        ReportView::new(page).report_movable_memory(*last);
        self.report.set(page);
    }

    /// Whether the client of this process is suspended.
    pub(crate) fn is_suspended(&self) -> bool {
        self.decides_memory() && self.grant_view().suspended()
    }
}
