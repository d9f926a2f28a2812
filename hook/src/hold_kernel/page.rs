//! The page that a context's hold kernels poll: host memory, mapped into the GPU's address space.
//!
//! The hook owns the page and never unmaps it, so a release needs no lock, even if the context ends meanwhile. Pages of contexts that have
//! ended are reused. A child process shares the page, so the parent's writes stay in place.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use sluice_hook_core::hold_kernel::HoldTimes;
use sluice_hook_core::lock;
use sluice_sys::page::{SharedPage, WORDS};

/// Byte offset of the words of the second kernel. See `kernel.ptx` for the rest of the layout.
pub(super) const SECOND: u64 = 256;

/// Indices of 64-bit words that the kernel writes.
const TICKET: usize = 8;
const BEGAN: usize = 9;
const ENDED: usize = 10;
/// Index of the 64-bit word of the host, away from the GPU's cache lines.
const RELEASED_NS: usize = 256;

static UNUSED: Mutex<Vec<HoldPage>> = Mutex::new(Vec::new());

#[derive(Debug, Clone, Copy)]
pub(super) struct HoldPage(&'static [AtomicU64; WORDS]);

impl HoldPage {
    /// A page of zeroes; `None` if the system has no memory.
    pub(super) fn new() -> Option<Self> {
        let used = lock(&UNUSED).pop();
        let page = match used {
            Some(page) => page,
            None => Self(Box::leak(Box::new(SharedPage::anonymous().ok()?)).words()),
        };
        page.0.iter().for_each(|word| word.store(0, Relaxed));
        Some(page)
    }

    /// Returns the page of a context that has ended.
    pub(super) fn recycle(self) {
        lock(&UNUSED).push(self);
    }

    pub(super) fn address(self) -> *mut std::ffi::c_void {
        self.0.as_ptr().cast_mut().cast()
    }

    pub(super) fn is(self, other: Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    pub(super) const BYTES: usize = WORDS * 8;

    /// The page at an address that [`Self::address`] returned.
    ///
    /// # Safety
    /// The address was returned by [`Self::address`].
    pub(super) unsafe fn at(address: *mut std::ffi::c_void) -> Self {
        // SAFETY: as the caller guarantees, this is the address of a page that is never unmapped.
        Self(unsafe { &*address.cast() })
    }

    /// Releases the hold kernel of this ticket and all earlier ones.
    pub(super) fn release(self, ticket: u32, now_ns: u64) {
        self.0[RELEASED_NS].store(now_ns, Relaxed);
        self.word().store(ticket, Release);
    }

    /// Clears the begin time before a hold kernel is launched.
    pub(super) fn prepare(self) {
        self.0[BEGAN].store(0, Release);
    }

    /// Whether the last hold kernel has got the GPU.
    pub(super) fn has_begun(self) -> bool {
        self.0[BEGAN].load(Acquire) != 0
    }

    /// The times of the hold kernel of this ticket, if the host released it.
    pub(super) fn times(self, ticket: u32, launched_ns: u64) -> Option<HoldTimes> {
        let of_ticket = self.0[TICKET].load(Acquire);
        (of_ticket == u64::from(ticket)).then(|| HoldTimes {
            launched_ns,
            released_ns: self.0[RELEASED_NS].load(Relaxed),
            began_gpu_ns: self.0[BEGAN].load(Relaxed),
            ended_gpu_ns: self.0[ENDED].load(Relaxed),
        })
    }

    fn word(self) -> &'static AtomicU32 {
        // SAFETY: the first 32 bits of the first word, accessed as such by the hook and the GPU only.
        unsafe { &*self.address().cast::<AtomicU32>() }
    }
}
