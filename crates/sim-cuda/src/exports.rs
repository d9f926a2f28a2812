//! The C interface: every symbol of the driver table, and the addresses that `cuGetProcAddress` returns.
//!
//! For tests the library counts the calls of each thread, which shows the calls that a hook adds, and refuses calls on
//! request.

use crate::border::{CArgument, Status};
use crate::state::context::current_or_none;
use sluice_driver_api::ENTRIES;
use sluice_driver_api::types::*;
use std::cell::Cell;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Runs a function of the API. A panic, which would be a bug, becomes CUDA_ERROR_UNKNOWN. A process that another
/// one has locked waits here, except in the functions that lock processes.
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
        enum SymbolIndex { $($symbol),* }

        mod symbols {
            use super::*;
            $(
                #[unsafe(no_mangle)]
                pub(super) unsafe extern "C" fn $symbol($($argument: $kind),*) -> CUresult {
                    super::count(SymbolIndex::$symbol as usize);
                    guard::<{ waits_unlocked(stringify!($symbol)) }>(|| {
                        super::refused(SymbolIndex::$symbol as usize)?;
                        // SAFETY: the caller of the driver API guarantees exactly what `convert` requires.
                        crate::api::$symbol($(unsafe { <$kind as CArgument>::convert($argument) }),*)
                    })
                }
            )*
        }

        /// Address of each function, in the order of `sluice_driver_api::ENTRIES`: the one that `dlsym` returns, as with the
        /// real driver. The library is linked so that a library preloaded in front of it does not change them.
        static ADDRESSES: &[unsafe extern "C" fn()] = &[$(
            // SAFETY: only the type changes, and the pointer is never called with this type: it is returned as an
            // address.
            unsafe { std::mem::transmute::<unsafe extern "C" fn($($kind),*) -> CUresult, unsafe extern "C" fn()>(symbols::$symbol) },
        )*];
    };
}
driver_api!(exports);

pub(crate) fn address(index: usize) -> Option<usize> {
    ADDRESSES.get(index).map(|function| (*function as *const ()).expose_provenance())
}

/// By index in the table: the low 32 bits are the code that the next calls return, the high 32 bits the number of these calls.
static REFUSALS: [AtomicU64; ENTRIES.len()] = [const { AtomicU64::new(0) }; ENTRIES.len()];

thread_local! {
    /// Calls of this thread by index in the table. Constant and without a destructor.
    static CALLS: [Cell<u64>; ENTRIES.len()] = const { [const { Cell::new(0) }; ENTRIES.len()] };
}

fn count(index: usize) {
    CALLS.with(|calls| {
        if let Some(calls) = calls.get(index) {
            calls.set(calls.get() + 1);
        }
    });
}

/// How often the calling thread has called the driver function of this symbol; with a null pointer, all functions.
///
/// # Safety
/// `symbol` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluiceSimCalls(symbol: *const c_char) -> u64 {
    // SAFETY: not null, so the caller guarantees a C string.
    let symbol = (!symbol.is_null()).then(|| unsafe { CStr::from_ptr(symbol) });
    let is_counted = |name: &str| symbol.is_none_or(|symbol| symbol.to_bytes() == name.as_bytes());
    CALLS.with(|calls| {
        let all = ENTRIES.iter().zip(calls);
        all.filter(|(entry, _)| is_counted(entry.symbol)).map(|(_, calls)| calls.get()).sum()
    })
}

/// Number of threads that wait for all work of the calling thread's context.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sluiceSimDraining() -> u32 {
    current_or_none().map_or(0, |context| context.draining())
}

/// Makes the next `times` calls of the driver function of this symbol, on any thread, return this code without
/// effect.
///
/// # Safety
/// `symbol` is a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluiceSimRefuse(symbol: *const c_char, code: u32, times: u32) {
    // SAFETY: as the caller guarantees.
    let symbol = unsafe { CStr::from_ptr(symbol) };
    let entries = ENTRIES.iter().zip(&REFUSALS);
    for (_, refusals) in entries.filter(|(entry, _)| entry.symbol.as_bytes() == symbol.to_bytes()) {
        refusals.store(u64::from(times) << 32 | u64::from(code), Relaxed);
    }
}

/// Returns the error of a call that is to be refused, for the function with this index in the table.
fn refused(index: usize) -> Status {
    let Some(refusals) = REFUSALS.get(index).filter(|refusals| refusals.load(Relaxed) != 0) else {
        return Ok(());
    };
    let one_less = |left: u64| left.checked_sub(1 << 32);
    let Ok(left) = refusals.fetch_update(Relaxed, Relaxed, one_less) else { return Ok(()) };
    Err(CUresult(u32::try_from(left & u64::from(u32::MAX)).unwrap_or(0)))
}
