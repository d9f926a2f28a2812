//! Allocations and frees of memory that may leave the GPU.

use std::sync::atomic::Ordering::*;

use sluice_driver_api::types::*;
use sluice_hook_core::lock;
use sluice_hook_core::residency::GRANULE_BYTES;
use sluice_sys::clock::monotonic_ns;

use super::entrance::{Waiter, enter};
use super::state::{CHUNKS, DEVICE, GATE, IS_ON, PENDING, sleep_until_change};
use super::{mover, physical, transfer};
use crate::captures::CAPTURES;
use crate::guard::guarded;
use crate::process::{self, ManagedDevice};
use crate::{fork, gpu, host_memory, known_contexts};

/// How long an allocation waits for room until the program gets an out-of-memory error. The time in which the client is suspended does not count.
const LONGEST_WAIT_NS: u64 = 120_000_000_000;

/// What an allocation of `bytes` takes in chunks, if it is made in chunks: the manager has sent host memory, and the allocation is not smaller
/// than the least physical memory.
fn size_in_chunks(bytes: u64) -> Option<u64> {
    let capacity = host_memory::bytes();
    // In a child, the lock below may be held by a thread that the child does not have.
    if fork::has_forked() || capacity == 0 || bytes < GRANULE_BYTES || CAPTURES.any() {
        return None;
    }
    let bytes = bytes.checked_next_multiple_of(GRANULE_BYTES)?;
    let chunks = lock(&CHUNKS);
    let others = chunks.bytes().saturating_add(PENDING.load(SeqCst));
    // A later manager does not fill the rest of the host memory, whose pages the program would pay for.
    let capacity = if host_memory::is_of_earlier_manager() { chunks.peak_bytes() } else { capacity };
    (others.saturating_add(bytes) <= capacity).then_some(bytes)
}

/// Allocates at least `bytes` in chunks, in the current context, as soon as the GPU has room for them. `None`: the driver allocates as usual.
///
/// # Safety
/// `pointer` is null or writable.
pub(crate) unsafe fn allocate<P>(pointer: *mut P, bytes: u64) -> Option<CUresult> {
    // The functions of the first driver versions have addresses of 32 bits.
    if pointer.is_null() || std::mem::size_of::<P>() != std::mem::size_of::<CUdeviceptr>() {
        return None;
    }
    let bytes = guarded(None, || size_in_chunks(bytes))?;
    gpu::count_devices();
    if !gpu::sees_one_device() {
        return None;
    }
    let managed = process::current_device().ok()?;
    // The driver's memory does not end with a green context, but its chunks would: they have no context of their own.
    let context = gpu::current_context().filter(|context| known_contexts::contains(*context))?;
    if !guarded(false, || switch_on(managed)) {
        return None;
    }
    PENDING.fetch_add(bytes, SeqCst);
    let made = guarded(Err(CUresult::ERROR_OUT_OF_MEMORY), || {
        if wait_for_room(managed) {
            make(managed, context, bytes)
        } else {
            Err(CUresult::ERROR_OUT_OF_MEMORY)
        }
    });
    PENDING.fetch_sub(bytes, SeqCst);
    mover::wake();
    match made {
        Ok(address) => {
            // SAFETY: as the caller guarantees.
            unsafe { pointer.cast::<CUdeviceptr>().write(address) };
            Some(CUresult::SUCCESS)
        }
        Err(CUresult::ERROR_OUT_OF_MEMORY) => Some(CUresult::ERROR_OUT_OF_MEMORY),
        // A driver without physical memory of this kind: the memory stays on the GPU.
        Err(_) => None,
    }
}

/// From here on allocations are made in chunks, and calls pass the gate. `false` if the system has no thread for the moves.
fn switch_on(managed: &'static ManagedDevice) -> bool {
    // With the lock held: no thread makes chunks before the gate is on.
    let _chunks = lock(&CHUNKS);
    if !IS_ON.load(Acquire) {
        DEVICE.share(managed);
        GATE.switch_on();
        if !mover::start(managed) {
            GATE.switch_off();
            return false;
        }
        IS_ON.store(true, Release);
    }
    true
}

/// Waits until what is allocated and what is about to be fits into the room of this process.
fn wait_for_room(managed: &'static ManagedDevice) -> bool {
    let has_room = || {
        let needed = lock(&CHUNKS).bytes().saturating_add(PENDING.load(SeqCst));
        mover::has_room(managed, needed)
    };
    if has_room() {
        return true;
    }
    let _waiter = Waiter::begin();
    mover::wake();
    let mut begun = monotonic_ns();
    while !has_room() {
        if managed.device.link.is_suspended() {
            begun = monotonic_ns();
        }
        if monotonic_ns().saturating_sub(begun) >= LONGEST_WAIT_NS {
            return false;
        }
        sleep_until_change();
    }
    true
}

fn make(managed: &ManagedDevice, context: u64, bytes: u64) -> Result<u64, CUresult> {
    let _call = enter();
    let device = c_int::try_from(managed.ordinal).map_err(|_| CUresult::ERROR_INVALID_DEVICE)?;
    let mut chunks = lock(&CHUNKS);
    let mut range = physical::reserve(bytes, context)?;
    if let Err(error) = physical::fill(&mut range, device) {
        physical::discard(&range);
        return Err(error);
    }
    let address = range.address;
    chunks.insert(range);
    Ok(address)
}

/// The size of the allocation in chunks that begins at this address, if there is one.
pub(crate) fn size_of(address: u64) -> Option<u64> {
    if IS_ON.load(Acquire) { lock(&CHUNKS).size_of(address) } else { None }
}

/// The context of the allocation in chunks that begins at this address, if there is one.
fn context_of(address: u64) -> Option<u64> {
    if IS_ON.load(Acquire) { lock(&CHUNKS).context_of(address) } else { None }
}

/// Frees an allocation in chunks, after all work of the context. `None`: there is none at this address.
///
/// A wait for a context whose stream is being captured would make the capture invalid. So while there is a capture, the mover frees it later.
pub(crate) fn free(address: u64) -> Option<CUresult> {
    let context = guarded(None, || context_of(address))?;
    if CAPTURES.any() {
        guarded((), || {
            lock(&CHUNKS).note_freed(address);
            mover::wake();
        });
        return Some(CUresult::SUCCESS);
    }
    let _call = enter();
    // As `cuMemFree`, which waits for all work that may use the memory. After an error of the context nothing uses it.
    let _waited = transfer::synchronize(context);
    guarded((), || {
        let taken = lock(&CHUNKS).take(address);
        taken.iter().for_each(physical::discard);
        mover::wake();
    });
    Some(CUresult::SUCCESS)
}
