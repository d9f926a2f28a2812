//! What each thread has called, counted here and not by whoever stands in front: a test asks it what a hook adds.

use std::cell::Cell;
use std::ffi::{CStr, c_char};

use sluice_driver_api::ENTRIES;

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
    // SAFETY: not null, so the caller promises a C string.
    let symbol = (!symbol.is_null()).then(|| unsafe { CStr::from_ptr(symbol) });
    let meant = |name: &str| symbol.is_none_or(|symbol| symbol.to_bytes() == name.as_bytes());
    CALLS.with(|calls| {
        let all = ENTRIES.iter().zip(calls);
        all.filter(|(entry, _)| meant(entry.symbol)).map(|(_, calls)| calls.get()).sum()
    })
}
