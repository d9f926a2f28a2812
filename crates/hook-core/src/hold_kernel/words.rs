//! The words of a hold kernel's page that the state writes and reads itself: no lock, driver call or system call is needed for them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// The hold kernel stays while this bit is set, up to [`super::request::MAX_STILL_NS`] without a change. Otherwise it stays for its linger
/// time.
const KEEPS: u32 = 1 << 0;
/// The process has work on the GPU: this time does not count as held.
const WORKING: u32 = 1 << 1;
/// Counts the changes, so that the kernel sees one even if the two bits are as before.
const STEP: u32 = 1 << 2;

/// References to the words of a context's page, which is never unmapped.
#[derive(Debug, Clone, Copy)]
pub struct HoldWords {
    /// The activity that the kernel polls.
    pub activity: &'static AtomicU32,
    /// When the activity first changed since the last launch of a hold kernel, by the host's clock; 0 if it has not.
    pub changed_ns: &'static AtomicU64,
    /// The ticket of the last hold kernel that ended, written by the kernel.
    pub ended: &'static AtomicU64,
}

impl HoldWords {
    pub(super) fn is_over(self, ticket: u32) -> bool {
        self.ended.load(Acquire) == u64::from(ticket)
    }
}

/// The activity of a process, as its hold kernels read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Activity(u32);

impl Activity {
    /// Advances to a new value.
    pub(super) fn change(&mut self, keeps: bool, working: bool) {
        let flag = |holds: bool, bit: u32| if holds { bit } else { 0 };
        self.0 = (self.0 & !(STEP - 1)).wrapping_add(STEP) | flag(keeps, KEEPS) | flag(working, WORKING);
    }

    /// Stores a change of `now_ns` for the active hold kernel.
    pub(super) fn store(self, words: HoldWords, now_ns: u64) {
        // Only the first change since the launch: the kernel writes when it saw that one.
        let _unless_changed = words.changed_ns.compare_exchange(0, now_ns, Relaxed, Relaxed);
        words.activity.store(self.0, Release);
    }

    /// Stores the value for a hold kernel that is still to be launched.
    pub(super) fn initialise(self, words: HoldWords) {
        words.activity.store(self.0, Release);
    }
}
