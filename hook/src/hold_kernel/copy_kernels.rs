//! The copy kernels of contexts, for the program's copies: they take no lock, which another thread could hold during a launch.

use std::sync::atomic::{AtomicU64, Ordering::*};

/// Contexts of one process whose copies a kernel can make. Copies in further ones are the driver's.
const CONTEXTS: usize = 16;

/// The function `sluice_copy` in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyKernel(u64);

impl CopyKernel {
    pub(super) const fn of(handle: u64) -> Self {
        Self(handle)
    }

    pub(crate) const fn handle(self) -> u64 {
        self.0
    }
}

struct Entry {
    /// 0 for none.
    context: AtomicU64,
    kernel: AtomicU64,
}

static ENTRIES: [Entry; CONTEXTS] =
    [const { Entry { context: AtomicU64::new(0), kernel: AtomicU64::new(0) } }; CONTEXTS];

/// Publishes the kernel of a context. The caller has the lock of all contexts.
pub(super) fn publish(context: u64, kernel: CopyKernel) {
    if let Some(entry) = ENTRIES.iter().find(|entry| entry.context.load(Relaxed) == 0) {
        entry.kernel.store(kernel.0, Relaxed);
        entry.context.store(context, Release);
    }
}

/// Withdraws the kernel of a context that has ended. The caller has the lock of all contexts.
pub(super) fn withdraw(context: u64) {
    for entry in ENTRIES.iter().filter(|entry| entry.context.load(Relaxed) == context) {
        entry.context.store(0, Release);
    }
}

/// The copy kernel of the calling thread's current context, which the program does not end during this call.
pub(crate) fn copy_kernel(context: u64) -> Option<CopyKernel> {
    let entry = ENTRIES.iter().find(|entry| entry.context.load(Acquire) == context)?;
    Some(CopyKernel(entry.kernel.load(Relaxed)))
}
