//! `cuGetProcAddress`: every modern CUDA runtime finds the driver's functions by it.
//!
//! The key is (name, version, flags). The real driver answers first. Its answer is replaced only if it is the very function whose
//! signature the table's row states. Any other function has an unknown ABI and is passed on.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use sluice_driver_api::types::CUdriverProcAddressQueryResult;
use sluice_driver_api::{CUresult, ENTRIES, lookup_index};
use sluice_hook_core::outcome::Bypass;

use super::guarded;
use crate::{process, real, symbols};

type Get = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> CUresult;
type GetV2 = unsafe extern "C" fn(
    *const c_char,
    *mut *mut c_void,
    c_int,
    u64,
    *mut CUdriverProcAddressQueryResult,
) -> CUresult;

/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn cuGetProcAddress(
    real: Get,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real(symbol, pfn, version, flags) };
    // SAFETY: on success the driver has read `symbol` and written `pfn`.
    unsafe { replace(result, symbol, pfn, version, flags) };
    result
}

/// # Safety
/// As the driver documents it.
pub(crate) unsafe fn cuGetProcAddress_v2(
    real: GetV2,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: the program's arguments, unchanged.
    let result = unsafe { real(symbol, pfn, version, flags, status) };
    // SAFETY: on success the driver has read `symbol` and written `pfn`.
    unsafe { replace(result, symbol, pfn, version, flags) };
    result
}

/// # Safety
/// If `result` is success, `symbol` is a C string, and `pfn` null or writable.
unsafe fn replace(
    result: CUresult,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) {
    if result != CUresult::SUCCESS || symbol.is_null() || pfn.is_null() {
        return;
    }
    // SAFETY: as the caller guarantees.
    let (name, found) = unsafe { (CStr::from_ptr(symbol), *pfn) };
    if found.is_null() {
        return;
    }
    let replacement = guarded(None, || wrapper_for(name.to_str().ok()?, version, flags, found));
    if let Some(replacement) = replacement {
        // SAFETY: as the caller guarantees.
        unsafe { *pfn = replacement };
    }
}

fn wrapper_for(name: &str, version: c_int, flags: u64, found: *mut c_void) -> Option<*mut c_void> {
    let index = lookup_index(name, version, flags)?;
    let wrapper = symbols::wrapper(index)?;
    let symbol = CString::new(ENTRIES.get(index)?.symbol).ok()?;
    if real::symbol(&symbol) == found {
        return Some(wrapper);
    }
    process::count_bypass(Bypass::UnknownAbi);
    None
}
