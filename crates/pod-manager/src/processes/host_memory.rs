//! Memory of the host to which the memory of a process may leave the GPU.
//!
//! It is a memfd that the manager makes as large as the process may need, and fills as far as it needs. The kernel charges a page to the
//! cgroup that makes it exist. So what the manager has filled counts in its own cgroup: leaving the GPU never brings a pod above its memory
//! limit. What a process writes beyond that counts in its pod.
//!
//! The manager never maps the memory. When the process has ended, it takes the pages out of the file, whatever other process has a descriptor or
//! a mapping of it. The process may live longer than the manager, and have its memory there: then the pages stay.

use super::numa;
use nix::fcntl::{FallocateFlags, fallocate};
use sluice_sys::memfd;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use tracing::warn;

/// Bytes that are filled before the thread looks whether they are still needed.
const BYTES_AT_ONCE: u64 = 64 << 20;

/// Held by the thread that fills. One at a time: twelve programs that began at once on 16 cores kept the event loop from running for 0.2 s.
static TURN: Mutex<()> = Mutex::new(());

/// The host memory of one process.
#[derive(Debug)]
pub(crate) struct HostMemory {
    /// `None` only while it is dropped.
    fd: Option<OwnedFd>,
    bytes: u64,
    /// The NUMA node from which its pages come, if it is known.
    numa_node: Option<u32>,
    filling: Mutex<Filling>,
    /// The process whose memory it is has ended, so no process needs the content.
    process_has_ended: AtomicBool,
}

#[derive(Debug, Default)]
struct Filling {
    /// Bytes from the begin whose pages exist, and those that are to exist.
    filled: u64,
    wanted: u64,
    /// A thread fills it.
    runs: bool,
}

impl HostMemory {
    /// Memory of this size, without a page. The pages come from this NUMA node, as far as it has some.
    pub(crate) fn create(bytes: u64, numa_node: Option<u32>) -> io::Result<Arc<Self>> {
        let fd = memfd::empty("sluice-memory", bytes)?;
        Ok(Arc::new(Self {
            fd: Some(fd),
            bytes,
            numa_node,
            filling: Mutex::default(),
            process_has_ended: AtomicBool::new(false),
        }))
    }

    /// The process has ended. The pages are taken out of the file as soon as nothing here uses it any more.
    pub(crate) fn note_process_ended(&self) {
        self.process_has_ended.store(true, Release);
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Bytes from the begin whose pages exist.
    pub(crate) fn filled(&self) -> u64 {
        self.filling().filled
    }

    /// Has a thread make this many bytes exist: the first touch of a page costs ten times as much as a copy to it.
    pub(crate) fn fill(self: &Arc<Self>, bytes: u64) {
        let mut filling = self.filling();
        filling.wanted = filling.wanted.max(bytes.min(self.bytes));
        if filling.runs || filling.wanted <= filling.filled {
            return;
        }
        let (memory, numa_node) = (Arc::downgrade(self), self.numa_node);
        let begun =
            thread::Builder::new().name("sluice-fill".to_owned()).spawn(move || fill(&memory, numa_node));
        filling.runs = begun.is_ok();
    }

    fn filling(&self) -> MutexGuard<'_, Filling> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next part exist. Returns whether there is more.
    fn fill_part(&self) -> bool {
        let (begin, end) = {
            let mut filling = self.filling();
            filling.runs = filling.filled < filling.wanted;
            if !filling.runs {
                return false;
            }
            (filling.filled, filling.wanted.min(filling.filled + BYTES_AT_ONCE))
        };
        let filled = self.allocate(begin, end);
        let mut filling = self.filling();
        match filled {
            Ok(()) => filling.filled = end,
            Err(error) => {
                filling.runs = false;
                warn!(%error, bytes = self.bytes, filled = begin, "the host has no memory for what leaves the GPU: it stays there");
            }
        }
        filling.runs
    }

    /// Keeps what the process may have written. The second call clears the pages that the first one has made, which the kernel would do at their
    /// first use otherwise.
    fn allocate(&self, begin: u64, end: u64) -> nix::Result<()> {
        let Some(fd) = &self.fd else { return Ok(()) };
        let offset = |at: u64| i64::try_from(at).map_err(|_| nix::errno::Errno::EFBIG);
        let (begin, bytes) = (offset(begin)?, offset(end - begin)?);
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        (0..2).try_for_each(|_| fallocate(fd, FallocateFlags::empty(), begin, bytes))
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if !*self.process_has_ended.get_mut() {
            return;
        }
        let Some((fd, bytes)) = self.fd.take().zip(i64::try_from(self.bytes).ok()) else { return };
        // It frees some 25 million pages of 100 GiB. The event loop does not wait for that. Without a thread the last descriptor's end frees them.
        let free = move || {
            let holes = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            if let Err(error) = fallocate(&fd, holes, 0, bytes) {
                warn!(%error, bytes, "host memory of a process is freed only when no other process has it");
            }
        };
        let _ended = thread::Builder::new().name("sluice-free".to_owned()).spawn(free);
    }
}

/// Fills until nothing more is wanted, or the memory is no longer needed.
fn fill(memory: &Weak<HostMemory>, numa_node: Option<u32>) {
    numa::run_on_node(numa_node);
    while memory.upgrade().is_some_and(|memory| memory.fill_part()) {}
}
