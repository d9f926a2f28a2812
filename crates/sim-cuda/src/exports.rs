//! The C interface: every symbol of the driver table, and the addresses that `cuGetProcAddress` returns.

use crate::border::{Border, Status};
use sluice_driver_api::types::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a function of the API. A panic, which would be a bug, becomes CUDA_ERROR_UNKNOWN. A process that is locked
/// from outside waits here, except in the functions that lock others.
fn guard<const WAITS: bool>(work: impl FnOnce() -> Status) -> CUresult {
    if WAITS {
        crate::state::driver::wait_unlocked();
    }
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => CUresult::SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => CUresult::ERROR_UNKNOWN,
    }
}

/// Whether a function waits while its process is locked: all do except `cuCheckpoint…`.
const fn waits_unlocked(symbol: &str) -> bool {
    !matches!(symbol.as_bytes(), [b'c', b'u', b'C', b'h', b'e', b'c', b'k', b'p', b'o', b'i', b'n', b't', ..])
}

macro_rules! exports {
    ($($policy:ident $symbol:ident ($name:literal, $since:literal, $variant:ident) fn($($argument:ident : $kind:ty),*);)*) => {
        #[derive(Clone, Copy)]
        enum Place { $($symbol),* }

        mod symbols {
            use super::*;
            $(
                #[unsafe(no_mangle)]
                pub(super) unsafe extern "C" fn $symbol($($argument: $kind),*) -> CUresult {
                    crate::calls::count(Place::$symbol as usize);
                    guard::<{ waits_unlocked(stringify!($symbol)) }>(|| {
                        crate::calls::refused(Place::$symbol as usize)?;
                        // SAFETY: the caller of the driver API guarantees exactly what `cross` requires.
                        crate::api::$symbol($(unsafe { <$kind as Border>::cross($argument) }),*)
                    })
                }
            )*
        }

        /// Address of each function, in the order of `sluice_driver_api::ENTRIES`: the one that `dlsym` gives, as with the
        /// real driver. The library is linked so that a library preloaded in front of it does not change them.
        static ADDRESSES: &[unsafe extern "C" fn()] = &[$(
            // SAFETY: only the type changes, and the pointer is never called with this type: it is returned as an
            // address.
            unsafe { std::mem::transmute::<unsafe extern "C" fn($($kind),*) -> CUresult, unsafe extern "C" fn()>(symbols::$symbol) },
        )*];
    };
}
driver_api!(exports);

/// Address of the function at this place of the table.
pub(crate) fn address(index: usize) -> Option<usize> {
    ADDRESSES.get(index).map(|function| (*function as *const ()).expose_provenance())
}
