//! The host memory to which this process's memory may leave. The manager has made and filled it, so it is not charged to the program.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::*};

use sluice_driver_api::types::*;
use sluice_sys::page::SharedRegion;

use crate::leaked::Leaked;
use crate::real;

/// Registered for all contexts.
const REGISTER_PORTABLE: c_uint = 1;

static MEMORY: Leaked<SharedRegion> = Leaked::none();

/// The context in which the memory is registered; 0: none.
static REGISTERED: AtomicU64 = AtomicU64::new(0);

/// The manager has sent host memory. The first one stays: it may hold the memory of this process.
pub(crate) fn received(memory: &OwnedFd) {
    if MEMORY.get().is_none()
        && let Ok(region) = SharedRegion::map_whole(memory.as_fd())
    {
        MEMORY.publish(region);
    }
}

/// Its size in bytes; 0 if there is none.
pub(crate) fn bytes() -> u64 {
    MEMORY.get().map_or(0, |region| size_of_val(region.words()) as u64)
}

/// The address of the byte at `offset`, if this many are there.
pub(crate) fn at(offset: u64, bytes: u64) -> Option<*mut c_void> {
    let words = MEMORY.get()?.words();
    let end = usize::try_from(offset.checked_add(bytes)?).ok()?;
    let offset = usize::try_from(offset).ok().filter(|_| end <= size_of_val(words))?;
    Some(words.as_ptr().cast::<c_void>().cast_mut().wrapping_byte_add(offset))
}

/// Pins it, in the current context, so that copies run at the speed of the link. A driver that refuses copies more slowly.
pub(crate) fn register(context: u64) {
    if REGISTERED.load(Acquire) != 0 {
        return;
    }
    let bytes = usize::try_from(bytes()).unwrap_or(0);
    if let (Some(start), Some(register)) = (at(0, bytes as u64), real::table().cuMemHostRegister_v2) {
        // SAFETY: the memory is mapped for the rest of the process.
        if unsafe { register(start, bytes, REGISTER_PORTABLE) } == CUresult::SUCCESS {
            REGISTERED.store(context, Release);
        }
    }
}

/// A context has ended, and with it what was registered in it.
pub(crate) fn context_ended(context: u64) {
    let _was_registered = REGISTERED.compare_exchange(context, 0, AcqRel, Acquire);
}
