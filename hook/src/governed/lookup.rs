//! `cuGetProcAddress`: every modern CUDA runtime finds the driver's functions by it.
//!
//! The key is (name, version, flags). The real driver answers first. Its answer is replaced only if it is the very function whose
//! signature the table's row states. Any other function has an unknown ABI and is passed on.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use sluice_driver_api::{CUresult, ENTRIES, lookup_index};
use sluice_hook_core::outcome::Bypass;

use crate::counters;
use crate::guard::guarded;
use crate::real;

/// Calls `real` and replaces its answer. `wrapper` returns the exported function of a row of the table, if it does more than the driver's.
///
/// # Safety
/// If `real` succeeds, `symbol` is null or a C string, and `pfn` null or writable.
pub(crate) unsafe fn call(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    (version, flags): (c_int, u64),
    wrapper: impl FnOnce(usize) -> Option<*mut c_void>,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = real();
    if result != CUresult::SUCCESS || symbol.is_null() || pfn.is_null() {
        return result;
    }
    // SAFETY: as the caller guarantees.
    let (name, found) = unsafe { (CStr::from_ptr(symbol), *pfn) };
    let replacement = guarded(None, || {
        if found.is_null() { None } else { wrapper_for(name.to_str().ok()?, version, flags, found, wrapper) }
    });
    if let Some(replacement) = replacement {
        // SAFETY: as the caller guarantees.
        unsafe { *pfn = replacement };
    }
    result
}

fn wrapper_for(
    name: &str,
    version: c_int,
    flags: u64,
    found: *mut c_void,
    wrapper: impl FnOnce(usize) -> Option<*mut c_void>,
) -> Option<*mut c_void> {
    let index = lookup_index(name, version, flags)?;
    let wrapper = wrapper(index)?;
    let symbol = CString::new(ENTRIES.get(index)?.symbol).ok()?;
    if real::symbol(&symbol) == found {
        return Some(wrapper);
    }
    counters::count_bypass(Bypass::UnknownAbi);
    None
}
