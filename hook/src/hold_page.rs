//! The page that a context's hold kernels poll: host memory, mapped into the GPU's address space.
//!
//! The hook owns the page and never unmaps it, so a release needs no lock, even if the context ends meanwhile. Pages of contexts that have
//! ended are reused. A child process shares the page, so the parent's writes stay in place.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use sluice_hook_core::hold_kernel::{HoldTimes, HoldWords};
use sluice_hook_core::lock;
use sluice_sys::page::{SharedPage, WORDS};

/// Byte offset of the words of the second kernel. See `kernel.ptx` for the rest of the layout.
pub(crate) const SECOND: u64 = 256;

/// Indices of 64-bit words that the kernel writes.
const TICKET: usize = 8;
const BEGAN: usize = 9;
const SEEN: usize = 11;
const IDLE: usize = 12;
/// Index of the 64-bit word of the host, away from the GPU's cache lines.
const CHANGED_NS: usize = 256;

static UNUSED: Mutex<Vec<HoldPage>> = Mutex::new(Vec::new());

#[derive(Debug, Clone, Copy)]
pub(crate) struct HoldPage(&'static [AtomicU64; WORDS]);

impl HoldPage {
    /// A page of zeroes; `None` if the system has no memory.
    pub(crate) fn new() -> Option<Self> {
        let used = lock(&UNUSED).pop();
        let page = match used {
            Some(page) => page,
            None => Self(Box::leak(Box::new(SharedPage::anonymous().ok()?)).words()),
        };
        page.0.iter().for_each(|word| word.store(0, Relaxed));
        Some(page)
    }

    /// Returns the page of a context that has ended.
    pub(crate) fn recycle(self) {
        lock(&UNUSED).push(self);
    }

    pub(crate) fn address(self) -> *mut std::ffi::c_void {
        self.0.as_ptr().cast_mut().cast()
    }

    pub(crate) fn is(self, other: Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    pub(crate) const BYTES: usize = WORDS * 8;

    /// The page at an address that [`Self::address`] returned.
    ///
    /// # Safety
    /// The address was returned by [`Self::address`].
    pub(crate) unsafe fn at(address: *mut std::ffi::c_void) -> Self {
        // SAFETY: as the caller guarantees, this is the address of a page that is never unmapped.
        Self(unsafe { &*address.cast() })
    }

    /// The words that the state of the hold kernels uses itself.
    pub(crate) fn words(self) -> HoldWords {
        HoldWords { activity: self.half(1), changed_ns: &self.0[CHANGED_NS], ended: &self.0[TICKET] }
    }

    /// Releases the hold kernel of this ticket and all earlier ones.
    pub(crate) fn release(self, ticket: u32) {
        self.half(0).store(ticket, Release);
    }

    /// Whether the host has released the hold kernel of this ticket.
    pub(crate) fn is_released(self, ticket: u32) -> bool {
        self.half(0).load(Relaxed) == ticket
    }

    /// Clears the times before a hold kernel is launched. Returns the activity: the kernel sees every change from here on.
    pub(crate) fn prepare(self) -> u32 {
        [BEGAN, SEEN, CHANGED_NS].iter().for_each(|word| self.0[*word].store(0, Relaxed));
        self.half(1).load(Acquire)
    }

    /// How long the hold kernel of this ticket and all before it had the GPU without work of the program, and its times if it saw a change of
    /// the activity. `None` if it has not ended.
    pub(crate) fn times(self, ticket: u32, launched_ns: u64) -> Option<(u64, Option<HoldTimes>)> {
        let has_ended = self.0[TICKET].load(Acquire) == u64::from(ticket);
        let [began_gpu_ns, seen_gpu_ns, idle_ns, changed_ns] =
            [BEGAN, SEEN, IDLE, CHANGED_NS].map(|word| self.0[word].load(Relaxed));
        let times = HoldTimes { launched_ns, changed_ns, began_gpu_ns, seen_gpu_ns };
        has_ended.then(|| (idle_ns, Some(times).filter(|_| seen_gpu_ns != 0 && changed_ns != 0)))
    }

    /// One half of the first word: the ticket or the activity.
    fn half(self, index: usize) -> &'static AtomicU32 {
        // SAFETY: 32 bits of the first word, accessed as such by the hook; the GPU reads the whole word.
        unsafe { &*self.address().cast::<AtomicU32>().add(index) }
    }
}
