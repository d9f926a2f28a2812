//! Linear memory: plain, pitched, managed, stream-ordered.

use sluice_driver_api::CUresult;
use sluice_hook_core::allocations::HandleSpace;

use super::charge::{AllocationRequest, allocate};
use crate::real;

/// All drivers so far round the rows of pitched memory up to this. The real pitch is settled after the allocation.
const PITCH_ALIGNMENT: u64 = 512;

/// Allocates memory that belongs to the current context.
///
/// # Safety
/// If `real` succeeds, it has written `pointer`.
pub(crate) unsafe fn of_context<P: Copy + Into<u64>>(
    pointer: *mut P,
    bytes: u64,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let request = AllocationRequest { bytes, space: HandleSpace::Pointer, in_context: true };
    // SAFETY: the driver has succeeded, so it has written the address.
    allocate(request, None, real, || (unsafe { *pointer }.into(), bytes), |_| {})
}

/// Allocates memory that belongs to a pool of the device.
///
/// # Safety
/// If `real` succeeds, it has written `pointer`.
pub(crate) unsafe fn of_pool(pointer: *mut u64, bytes: u64, real: impl FnOnce() -> CUresult) -> CUresult {
    let request = AllocationRequest { bytes, space: HandleSpace::Pointer, in_context: false };
    // SAFETY: the driver has succeeded, so it has written the address.
    allocate(request, None, real, || (unsafe { *pointer }, bytes), |_| {})
}

/// Allocates rows of `width` bytes each, and whatever the driver adds to a row.
///
/// # Safety
/// If `real` succeeds, it has written `pointer` and `pitch`.
pub(crate) unsafe fn pitched<P: Copy + Into<u64>, S: Copy + TryInto<u64>>(
    (pointer, pitch): (*mut P, *mut S),
    (width, rows): (u64, u64),
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let expected = width.checked_next_multiple_of(PITCH_ALIGNMENT).unwrap_or(u64::MAX);
    let of_rows = |pitch: u64| pitch.saturating_mul(rows);
    allocate(
        AllocationRequest { bytes: of_rows(expected), space: HandleSpace::Pointer, in_context: true },
        None,
        real,
        || {
            // SAFETY: the driver has succeeded, so it has written address and pitch.
            let (pointer, pitch) = unsafe { (*pointer, *pitch) };
            (pointer.into(), of_rows(pitch.try_into().unwrap_or(u64::MAX)))
        },
        give_up,
    )
}

/// Frees pitched memory whose real size does not fit into the limit.
fn give_up(pointer: u64) {
    if let Some(free) = real::table().cuMemFree_v2 {
        // SAFETY: the driver has just allocated it, and the program does not have the address yet.
        let _freed = unsafe { free(pointer) };
    }
}
