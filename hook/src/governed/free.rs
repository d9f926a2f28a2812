//! Frees: the charge is released when the driver has freed the memory.

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;
use sluice_hook_core::allocations::HandleSpace;
use sluice_preempt::command::Work;

use super::charge::{MayWait, free};
use crate::preempt;

pub(crate) use super::physical::cuMemRelease;

macro_rules! frees {
    ($($name:ident($handle:ty $(, $argument:ident: $kind:ty)*) $space:ident $waits:ident $number:expr;)*) => { $(
        /// # Safety
        /// As the driver documents it.
        pub(crate) unsafe fn $name(
            real: unsafe extern "C" fn($handle $(, $kind)*) -> CUresult,
            handle: $handle
            $(, $argument: $kind)*
        ) -> CUresult {
            let number: fn($handle) -> u64 = $number;
            // SAFETY: the program's arguments, unchanged.
            free(HandleSpace::$space, number(handle), MayWait::$waits, || unsafe { real(handle $(, $argument)*) })
        }
    )* };
}

frees! {
    cuMemFree(CUdeviceptr_v1) Pointer Yes u64::from;
    cuMemFree_v2(CUdeviceptr) Pointer Yes |pointer| pointer;
    cuArrayDestroy(CUarray) Array Yes |array| array.addr() as u64;
    cuMipmappedArrayDestroy(CUmipmappedArray) Mipmap Yes |array| array.addr() as u64;
}

macro_rules! ordered {
    ($($name:ident $per_thread:literal;)*) => { $(
        /// # Safety
        /// As the driver documents it.
        pub(crate) unsafe fn $name(
            real: unsafe extern "C" fn(CUdeviceptr, CUstream) -> CUresult,
            pointer: CUdeviceptr,
            stream: CUstream,
        ) -> CUresult {
            free(HandleSpace::Pointer, pointer, MayWait::No, || {
                preempt::submit_by_value(
                    (Some(stream), $per_thread),
                    || Work::Small,
                    // SAFETY: the program's arguments, unchanged.
                    || unsafe { real(pointer, stream) },
                    // SAFETY: the same on the stream that replaces this one.
                    |on| unsafe { real(pointer, on) },
                    // SAFETY: as above, when the commands in front of it have been submitted.
                    || Box::new(move |on| unsafe { real(pointer, on) }),
                )
            })
        }
    )* };
}

ordered! {
    cuMemFreeAsync false;
    cuMemFreeAsync_ptsz true;
}
