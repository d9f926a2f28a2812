//! The copy kernels of contexts, for the program's copies: they take no lock, which another thread could hold during a launch.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::*};

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;

use crate::{gpu, real};

const BLOCK_THREADS: u32 = 512;
/// Bytes that one load of a thread moves. A thread has up to four in flight.
const LOAD_BYTES: usize = 16;
/// With these blocks 128 KiB are in flight at least, more than the host link needs to be busy.
const MAX_BLOCKS: usize = 16;

/// Contexts of one process whose copies a kernel can make. Copies in further ones are the driver's.
const CONTEXTS: usize = 16;

/// The function `sluice_copy` in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyKernel(u64);

impl CopyKernel {
    pub(super) const fn of(handle: u64) -> Self {
        Self(handle)
    }

    /// Launches the kernel in the current context; `false` if the driver refuses that.
    ///
    /// # Safety
    /// The kernel was loaded in the current context, to which the stream belongs. Kernels of this context may read and write `bytes` bytes at
    /// both addresses until the launch is over.
    pub(crate) unsafe fn launch(
        self,
        stream: CUstream,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
    ) -> bool {
        let Some(launch) = real::table().cuLaunchKernel else { return false };
        let (mut to, mut from, mut length) = (to, from, bytes as u64);
        let mut params: [*mut c_void; 3] =
            [(&raw mut to).cast(), (&raw mut from).cast(), (&raw mut length).cast()];
        let blocks = bytes.div_ceil(BLOCK_THREADS as usize * LOAD_BYTES).clamp(1, MAX_BLOCKS);
        let blocks = c_uint::try_from(blocks).unwrap_or(1);
        let (kernel, none) = (gpu::pointer(self.0), std::ptr::null_mut());
        // SAFETY: as the caller guarantees. The three parameters are what the kernel takes, and are copied before the call returns.
        let launched = unsafe {
            launch(kernel, blocks, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, params.as_mut_ptr(), none)
        };
        launched == CUresult::SUCCESS
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

/// Withdraws the kernel of a context that may be about to end. The caller has the lock of all contexts.
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
