//! The active hold kernel: the page by which it is released, and the activity that is reported to the manager for it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

use sluice_hook_core::hold_kernel::HoldPlan;
use sluice_hook_core::platform::Clock;

use crate::clock::HostClock;
use crate::gpu_driver::GpuDevice;
use crate::hold_page::HoldPage;

/// After this time beyond its end, a hold kernel that neither a launch nor a wait has released is given up.
const EXPIRY_MARGIN_NS: u64 = 1_000_000;

/// The active hold kernel of a device, which the manager counts as work.
#[derive(Debug)]
pub(crate) struct ActiveHold {
    page: AtomicPtr<c_void>,
    /// Until when the manager is told that there is work; 0 if not for a hold kernel.
    until_ns: AtomicU64,
    /// When the last hold kernel is over, if it ever got the GPU; 0 if it has been counted.
    over_ns: AtomicU64,
}

impl ActiveHold {
    pub(crate) const fn none() -> Self {
        Self {
            page: AtomicPtr::new(std::ptr::null_mut()),
            until_ns: AtomicU64::new(0),
            over_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn page(&self) -> Option<HoldPage> {
        let page = self.page.load(Acquire);
        // SAFETY: not null, so it is the address that `set` stored.
        (!page.is_null()).then(|| unsafe { HoldPage::at(page) })
    }

    pub(crate) fn set(&self, page: HoldPage) {
        self.page.store(page.address(), Release);
    }

    /// Reports activity, because a request is about to arrive and no other client is to get the GPU.
    pub(crate) fn expect_work(&self, device: &GpuDevice, hold: HoldPlan) {
        let until_ns = (hold.starts_ns + hold.timeout_ns + EXPIRY_MARGIN_NS).max(1);
        // Counted first: a thread that clears it meanwhile removes exactly this count.
        device.begin_blocking();
        if self.until_ns.swap(until_ns, AcqRel) != 0 {
            device.end_blocking();
        }
        self.over_ns.store(until_ns, Release);
    }

    /// Records that the hold kernel was over and was counted.
    pub(crate) fn set_counted(&self) {
        self.over_ns.store(0, Release);
    }

    /// Whether a hold kernel that is over has not been counted.
    pub(crate) fn has_uncounted_hold(&self) -> bool {
        let over_ns = self.over_ns.load(Acquire);
        over_ns != 0 && HostClock.now_ns() > over_ns
    }

    /// Ends the activity: the request has arrived, or was given up.
    pub(crate) fn clear_expected_work(&self, device: &GpuDevice) {
        if self.until_ns.swap(0, AcqRel) != 0 {
            device.end_blocking();
        }
    }

    /// Whether the request should have arrived by now.
    pub(crate) fn is_overdue(&self) -> bool {
        let until_ns = self.until_ns.load(Relaxed);
        until_ns != 0 && HostClock.now_ns() > until_ns
    }
}
