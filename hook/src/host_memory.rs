//! The host memory to which this process's memory may leave. The manager has made and filled it, so it is not charged to the program.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};

use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_sys::page::SharedRegion;

use crate::leaked::Leaked;
use crate::real;

/// The memory and the file that it is.
#[derive(Debug)]
struct HostMemory {
    region: SharedRegion,
    /// The number of its inode.
    file: u64,
}

/// Registered for all contexts.
const REGISTER_PORTABLE: c_uint = 1;

static MEMORY: Leaked<HostMemory> = Leaked::none();

/// The part of the memory that is registered, if any.
static REGISTERED: Mutex<Option<Registration>> = Mutex::new(None);

/// A registration of the first bytes.
struct Registration {
    context: u64,
    bytes: u64,
}

/// A later manager has sent other memory.
static IS_OF_EARLIER_MANAGER: AtomicBool = AtomicBool::new(false);

/// The manager has sent host memory. The first one stays: it may hold the memory of this process.
pub(crate) fn received(memory: &OwnedFd) {
    let Ok(file) = memory.try_clone().map(File::from).and_then(|file| file.metadata()).map(|file| file.ino())
    else {
        return;
    };
    match MEMORY.get() {
        Some(known) => IS_OF_EARLIER_MANAGER.store(known.file != file, Release),
        None => {
            if let Ok(region) = SharedRegion::map_whole(memory.as_fd()) {
                MEMORY.publish(HostMemory { region, file });
            }
        }
    }
}

/// Whether the memory is not the one that the manager has sent which runs now.
pub(crate) fn is_of_earlier_manager() -> bool {
    IS_OF_EARLIER_MANAGER.load(Acquire)
}

/// Its size in bytes; 0 if there is none.
pub(crate) fn bytes() -> u64 {
    MEMORY.get().map_or(0, |memory| size_of_val(memory.region.words()) as u64)
}

/// The address of the byte at `offset`, if this many are there.
pub(crate) fn at(offset: u64, bytes: u64) -> Option<*mut c_void> {
    let words = MEMORY.get()?.region.words();
    let end = usize::try_from(offset.checked_add(bytes)?).ok()?;
    let offset = usize::try_from(offset).ok().filter(|_| end <= size_of_val(words))?;
    Some(words.as_ptr().cast::<c_void>().cast_mut().wrapping_byte_add(offset))
}

/// Pins the first `needed` bytes in the current context, so that copies run at the speed of the link. A driver that refuses copies more
/// slowly. The rest has no pages yet: pinning would make them, at the expense of the program.
///
/// A copy must not cross the end of a registration, so if more is needed than before, all of it is registered anew.
pub(crate) fn register(context: u64, needed: u64) {
    let mut registered = lock(&REGISTERED);
    let (Some(start), Ok(size)) = (at(0, needed), usize::try_from(needed)) else { return };
    if let Some(before) = &*registered {
        if before.bytes >= needed {
            return;
        }
        let Some(unregister) = real::table().cuMemHostUnregister else { return };
        // SAFETY: it was registered below, and no copy is in progress: the thread that copies calls this before.
        if unsafe { unregister(start) } != CUresult::SUCCESS {
            return;
        }
        *registered = None;
    }
    if let Some(register) = real::table().cuMemHostRegister_v2 {
        // SAFETY: the memory is mapped for the rest of the process.
        if unsafe { register(start, size, REGISTER_PORTABLE) } == CUresult::SUCCESS {
            *registered = Some(Registration { context, bytes: needed });
        }
    }
}

/// A context has ended, and with it what was registered in it.
pub(crate) fn context_ended(context: u64) {
    lock(&REGISTERED).take_if(|registered| registered.context == context);
}
