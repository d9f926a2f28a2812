//! Loads that began before the engine existed: the engine does not know of them.

use std::sync::atomic::{AtomicU32, Ordering::*, fence};

/// Number of such loads.
static UNTRACKED: AtomicU32 = AtomicU32::new(0);

/// One of them, while it exists.
pub(super) struct UntrackedLoad;

impl UntrackedLoad {
    /// A load in progress. From here on a thread that engages the engine sees it, or this thread sees that calls go through the engine.
    pub(super) fn begin() -> Self {
        UNTRACKED.fetch_add(1, Relaxed);
        fence(SeqCst);
        Self
    }
}

impl Drop for UntrackedLoad {
    fn drop(&mut self) {
        UNTRACKED.fetch_sub(1, Relaxed);
    }
}

/// Whether such a load is in progress. If so, no stream may stop at a gate for which the load could wait.
pub(super) fn is_any_untracked() -> bool {
    // A load that is not counted here sees that calls go through the engine.
    fence(SeqCst);
    UNTRACKED.load(Relaxed) > 0
}
