//! Counters of copies by a kernel in this process.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Copies that the kernel made.
pub(super) static MADE: AtomicU64 = AtomicU64::new(0);

/// Why a copy that a kernel was to make is left to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is empty, or larger than the kernel makes.
    Size,
    /// A stream is being captured. A graph contains the copies that the program made.
    Capturing,
    /// A launch would have to wait now.
    NoGrant,
    /// The stream is of another context, or the hook keeps commands for streams.
    Stream,
    /// The kernel is not loaded in the context.
    NotPrepared,
    /// An end is pageable, managed, of another device, or not whole in one allocation.
    Memory,
    /// The driver refused the launch.
    Driver,
    /// Work of the process that is not ahead of it in its stream may wait for it.
    Busy,
}

static REFUSED: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

impl Refusal {
    pub(super) fn count(self) {
        REFUSED[self as usize].fetch_add(1, Relaxed);
    }
}

/// The counters of `sluice_hook_copies`, in its order.
pub(crate) fn counts() -> Vec<u64> {
    [&MADE].into_iter().chain(&REFUSED).map(|count| count.load(Relaxed)).collect()
}
