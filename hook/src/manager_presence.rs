//! Whether the manager of a device runs, by its heartbeat on the grant page.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

use sluice_comm::page::{GrantView, WORDS};
use sluice_sys::clock::monotonic_ns;

use crate::manager_clock::ManagerClock;

/// The presence of one device's manager, for all connections to it and for the thread that recovers groups.
#[derive(Debug)]
pub(crate) struct ManagerPresence {
    /// The grant page of the attached token connection; null without one. Pages stay mapped.
    page: AtomicPtr<[AtomicU64; WORDS]>,
    /// The clock of the times on the pages.
    pub(crate) clock: ManagerClock,
}

impl ManagerPresence {
    pub(crate) const fn unknown() -> Self {
        Self { page: AtomicPtr::new(std::ptr::null_mut()), clock: ManagerClock::same() }
    }

    /// The token connection is attached, and reads this grant page.
    pub(crate) fn attached(&self, page: &'static [AtomicU64; WORDS]) {
        self.page.store(std::ptr::from_ref(page).cast_mut(), SeqCst);
    }

    /// The token connection is no longer attached.
    pub(crate) fn detached(&self) {
        self.page.store(std::ptr::null_mut(), Release);
    }

    /// [`sluice_hook_core::platform::TokenLink::presence_left_ns`] at this moment.
    pub(crate) fn left_ns(&self) -> Option<u64> {
        let now_ns = self.clock.to_managers(monotonic_ns());
        // SAFETY: the pointer is null or that of a page of `attached`, which is never unmapped.
        unsafe { self.page.load(Acquire).as_ref() }
            .and_then(|page| GrantView::new(page).presence_left_ns(now_ns))
    }
}
