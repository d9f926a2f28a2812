//! Memory of the host to which the memory of a process may leave the GPU.
//!
//! It is a memfd that the manager makes and fills, so the kernel charges its pages to the manager's cgroup, and not to the pod's: leaving the GPU
//! never brings a pod above its memory limit. The process maps it; no other process gets its descriptor.

use sluice_sys::page::SharedRegion;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

/// Words of a page of memory.
const PAGE_WORDS: usize = 512;
/// Pages that are filled before the thread looks whether the process still exists.
const PAGES_AT_ONCE: usize = 16_384;

/// The host memory of one process.
#[derive(Debug)]
pub(crate) struct HostMemory {
    /// `None` only while it is dropped.
    fd: Option<OwnedFd>,
    bytes: u64,
    is_filled: Arc<AtomicBool>,
}

impl HostMemory {
    /// Memory of this size. A thread fills it: the first touch of a page costs ten times as much as a copy to it.
    pub(crate) fn create(bytes: u64) -> io::Result<Self> {
        let words = usize::try_from(bytes / size_of::<AtomicU64>() as u64);
        let words = words.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let (region, fd) = SharedRegion::create("sluice-memory", words)?;
        let is_filled = Arc::new(AtomicBool::new(false));
        let filled = Arc::downgrade(&is_filled);
        // The thread unmaps the region when it ends, so the manager does not have the pages in its address space.
        thread::Builder::new().name("sluice-fill".to_owned()).spawn(move || fill(&region, &filled))?;
        Ok(Self { fd: Some(fd), bytes, is_filled })
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether all its pages exist.
    pub(crate) fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Acquire)
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let fd = self.fd.take();
        // The last descriptor's end frees the pages, some 25 million of 100 GiB. The event loop does not wait for that. Without a thread it does.
        let _ended = thread::Builder::new().name("sluice-free".to_owned()).spawn(move || drop(fd));
    }
}

/// Makes the pages exist and keeps what the process may have written to them. Ends early if the process has ended.
fn fill(region: &SharedRegion, filled: &Weak<AtomicBool>) {
    for begin in (0..region.words().len()).step_by(PAGE_WORDS * PAGES_AT_ONCE) {
        if filled.strong_count() == 0 {
            return;
        }
        let part = region.words().iter().skip(begin).take(PAGE_WORDS * PAGES_AT_ONCE);
        part.step_by(PAGE_WORDS).for_each(|word| _ = word.fetch_or(0, Ordering::Relaxed));
    }
    if let Some(filled) = filled.upgrade() {
        filled.store(true, Ordering::Release);
    }
}
