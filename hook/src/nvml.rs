//! NVML: exports the functions of `sluice_driver_api::nvml_api!`. The real library answers first. All functions without a row are that
//! library's.

#![allow(non_snake_case, reason = "the names are NVML's")]

use std::ffi::{CStr, c_uint, c_ulonglong, c_void};

use sluice_driver_api::nvml::*;

use crate::governed::nvml as governed;
use crate::real_nvml::{missing, real};

/// The exported function of a symbol; `None` if it has no row.
pub(crate) fn wrapper(symbol: &CStr) -> Option<*mut c_void> {
    let row = NVML_SYMBOLS.iter().position(|name| *name == symbol)?;
    EXPORTS.get(row).map(|export| export.0.cast_mut())
}

struct Export(*const c_void);

// SAFETY: the pointer is the address of a function, which no thread can change.
unsafe impl Sync for Export {}

macro_rules! exports {
    (@body memory $real:ident ($device:ident $memory:ident)) => {
        governed::memory($device, $memory, || unsafe { $real($device, $memory) })
    };
    (@body list $real:ident ($device:ident $count:ident $infos:ident)) => {
        governed::list($device, ($count, $infos), NVML_SUCCESS, |count, infos| unsafe { $real($device, count, infos) })
    };
    (@body samples $real:ident ($device:ident $samples:ident $count:ident $since:ident)) => {
        governed::list($device, ($count, $samples), NVML_ERROR_NOT_FOUND, |count, samples| unsafe {
            $real($device, samples, count, $since)
        })
    };
    (@body details $real:ident ($device:ident $list:ident)) => {
        exports!(@in_structure $real $device $list numProcArrayEntries procArray NVML_SUCCESS)
    };
    (@body utilization $real:ident ($device:ident $info:ident)) => {
        exports!(@in_structure $real $device $info processSamplesCount procUtilArray NVML_ERROR_NOT_FOUND)
    };
    // Count and array are fields of a structure. A structure of another version has an unknown layout.
    (@in_structure $real:ident $device:ident $all:ident $count:ident $entries:ident $none:ident) => {{
        if $all.is_null() || unsafe { (*$all).version } != struct_version_of($all) {
            return unsafe { $real($device, $all) };
        }
        let (count, entries) = unsafe { (&raw mut (*$all).$count, (*$all).$entries) };
        governed::list($device, (count, entries), $none, |count, entries| {
            let mut copy = unsafe { *$all };
            (copy.$count, copy.$entries) = (unsafe { *count }, entries);
            let result = unsafe { $real($device, &raw mut copy) };
            unsafe { *count = copy.$count };
            result
        })
    }};
    ($($policy:ident $symbol:ident fn($($a:ident : $kind:ty),*);)*) => {
        $(
            /// NVML's function of this name.
            ///
            /// # Safety
            /// As NVML documents it.
            #[unsafe(no_mangle)]
            #[allow(clippy::undocumented_unsafe_blocks, reason = "SAFETY: the caller's arguments go to the real function of the same name, so its contract is the caller's. Arrays may be replaced by arrays of the hook with their count. Structures are read where NVML's contract makes them readable, after a check for null")]
            pub(crate) unsafe extern "C" fn $symbol($($a: $kind),*) -> nvmlReturn_t {
                let Some(real) = real().$symbol else { return missing() };
                exports!(@body $policy real ($($a)*))
            }
        )*

        /// All exports, in the order of [`NVML_SYMBOLS`].
        static EXPORTS: &[Export] = &[$(Export($symbol as *const c_void),)*];
    };
}
sluice_driver_api::nvml_api!(exports);

/// The version that the structures with a list have.
fn struct_version_of<T>(_: *const T) -> c_uint {
    struct_version::<T>(1)
}
