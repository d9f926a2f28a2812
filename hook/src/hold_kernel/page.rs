//! The page that a context's holds watch: the host's memory, mapped into the GPU's.
//!
//! It is ours and never unmapped, so that whoever releases needs no lock, whatever becomes of the context meanwhile; pages of
//! contexts that are gone are used again. A child process shares it, which keeps the parent's writes in place.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, PoisonError};

use sluice_hook_core::hold_kernel::HoldTimes;
use sluice_sys::page::{SharedPage, WORDS};

/// Offset of what the second kernel of a hold watches and writes, in bytes. See `kernel.ptx` for the rest of the layout.
pub(super) const SECOND: u64 = 256;

/// In 64-bit words: what the kernel writes.
const OF_TICKET: usize = 8;
const BEGAN: usize = 9;
const ENDED: usize = 10;
/// In 64-bit words: the host's notes, away from the GPU's cache lines.
const RELEASED_NS: usize = 256;

static UNUSED: Mutex<Vec<HoldPage>> = Mutex::new(Vec::new());

/// One such page.
#[derive(Debug, Clone, Copy)]
pub(super) struct HoldPage(&'static [AtomicU64; WORDS]);

impl HoldPage {
    /// A page of zeroes; `None` if the system has none.
    pub(super) fn new() -> Option<Self> {
        let used = UNUSED.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let page = match used {
            Some(page) => page,
            None => Self(Box::leak(Box::new(SharedPage::anonymous().ok()?)).words()),
        };
        page.0.iter().for_each(|word| word.store(0, Relaxed));
        Some(page)
    }

    /// The page of a context that is gone.
    pub(super) fn give_back(self) {
        UNUSED.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }

    pub(super) fn address(self) -> *mut std::ffi::c_void {
        self.0.as_ptr().cast_mut().cast()
    }

    pub(super) fn is(self, other: Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    pub(super) const BYTES: usize = WORDS * 8;

    /// From a pointer that [`Self::address`] gave.
    ///
    /// # Safety
    /// The pointer is such a one.
    pub(super) unsafe fn at(address: *mut std::ffi::c_void) -> Self {
        // SAFETY: as the caller promises, this is the address of a page that is never unmapped.
        Self(unsafe { &*address.cast() })
    }

    /// Lets the hold of this ticket, and all before it, end.
    pub(super) fn release(self, ticket: u32, now_ns: u64) {
        self.0[RELEASED_NS].store(now_ns, Relaxed);
        self.word().store(ticket, Release);
    }

    /// A hold is about to be launched.
    pub(super) fn prepare(self) {
        self.0[BEGAN].store(0, Release);
    }

    /// Whether the last hold has got the GPU.
    pub(super) fn has_begun(self) -> bool {
        self.0[BEGAN].load(Acquire) != 0
    }

    /// Both ends of the hold of this ticket, if the host released it.
    pub(super) fn times(self, ticket: u32, launched_ns: u64) -> Option<HoldTimes> {
        let of_ticket = self.0[OF_TICKET].load(Acquire);
        (of_ticket == u64::from(ticket)).then(|| HoldTimes {
            launched_ns,
            released_ns: self.0[RELEASED_NS].load(Relaxed),
            began_gpu_ns: self.0[BEGAN].load(Relaxed),
            ended_gpu_ns: self.0[ENDED].load(Relaxed),
        })
    }

    fn word(self) -> &'static AtomicU32 {
        // SAFETY: the first 32 bits of the first word, accessed as such by us and by the GPU only.
        unsafe { &*self.address().cast::<AtomicU32>() }
    }
}
