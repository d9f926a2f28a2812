//! The page on which a device's connection reports to its manager.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

use sluice_comm::page::{ReportView, WORDS};

/// The page of the last attachment, or none. Older pages stay mapped: another thread may be writing to one.
#[derive(Debug)]
pub(crate) struct ReportPage(AtomicPtr<[AtomicU64; WORDS]>);

impl ReportPage {
    pub(crate) const fn none() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(crate) fn set(&self, page: &'static [AtomicU64; WORDS]) {
        self.0.store(std::ptr::from_ref(page).cast_mut(), Release);
    }

    pub(crate) fn view(&self) -> Option<ReportView<'static>> {
        // SAFETY: the pointer is null or that of a page of `set`, which is never unmapped.
        unsafe { self.0.load(Acquire).as_ref() }.map(ReportView::new)
    }
}
