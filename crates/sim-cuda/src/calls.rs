//! Counts of driver calls per thread, made in this library, so that a test can see which calls a hook adds. Also lets
//! a test observe waiting calls, and make the driver refuse calls.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sluice_driver_api::{CUresult, ENTRIES};

use crate::border::Status;
use crate::state::context::current_or_none;

/// By place in the table, the code that the next calls are answered with, and above it how many of them.
static REFUSALS: [AtomicU64; ENTRIES.len()] = [const { AtomicU64::new(0) }; ENTRIES.len()];

thread_local! {
    /// By place in the table. Constant and without a destructor.
    static CALLS: [Cell<u64>; ENTRIES.len()] = const { [const { Cell::new(0) }; ENTRIES.len()] };
}

/// The calling thread calls the function at this place of the table.
pub(crate) fn count(index: usize) {
    CALLS.with(|calls| {
        if let Some(calls) = calls.get(index) {
            calls.set(calls.get() + 1);
        }
    });
}

/// How often the calling thread has called the driver function of this symbol; with a null pointer, any of them.
///
/// # Safety
/// `symbol` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sluiceSimCalls(symbol: *const c_char) -> u64 {
    // SAFETY: not null, so the caller guarantees a C string.
    let symbol = (!symbol.is_null()).then(|| unsafe { CStr::from_ptr(symbol) });
    let meant = |name: &str| symbol.is_none_or(|symbol| symbol.to_bytes() == name.as_bytes());
    CALLS.with(|calls| {
        let all = ENTRIES.iter().zip(calls);
        all.filter(|(entry, _)| meant(entry.symbol)).map(|(_, calls)| calls.get()).sum()
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
    let places = ENTRIES.iter().zip(&REFUSALS);
    for (_, refusals) in places.filter(|(entry, _)| entry.symbol.as_bytes() == symbol.to_bytes()) {
        refusals.store(u64::from(times) << 32 | u64::from(code), Relaxed);
    }
}

/// The result of a call that is to be refused, for the function at this place of the table.
pub(crate) fn refused(index: usize) -> Status {
    let Some(refusals) = REFUSALS.get(index).filter(|refusals| refusals.load(Relaxed) != 0) else {
        return Ok(());
    };
    let one_less = |left: u64| left.checked_sub(1 << 32);
    let Ok(left) = refusals.fetch_update(Relaxed, Relaxed, one_less) else { return Ok(()) };
    Err(CUresult(u32::try_from(left & u64::from(u32::MAX)).unwrap_or(0)))
}
