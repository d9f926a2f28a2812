//! Whether this process is the child of a process that had used the driver. The driver does not work in such a child, so every call
//! bypasses. Only atomics.

use std::sync::atomic::{AtomicBool, Ordering::*};

/// The driver was initialised in this process, or in the one that it was forked from.
static INITIALISED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this is the child of a process that had used the driver.
pub(crate) fn has_forked() -> bool {
    FORKED.load(Acquire)
}

/// Records that the driver was initialised.
pub(crate) fn note_initialised() {
    INITIALISED.store(true, Release);
}

/// In the child of a fork: nothing is governed any more if the parent had initialised the driver, or had a device. Locks of the hook may be
/// held there for ever, also if the parent had no managed device.
pub(crate) fn after_fork(had_device: bool) {
    if had_device || INITIALISED.load(Acquire) {
        FORKED.store(true, Release);
    }
}
