//! NVML's functions that the hook answers itself, as data: one row each, with their types.
//!
//! `nvml_api!` passes the rows to a macro of the caller: the hook's exports, the addresses of the real library, look-ups, and the test that
//! the simulator has them. All other functions of NVML are left to the library.

#![allow(
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    reason = "names, types and fields are NVML's (nvml.h)"
)]

use std::ffi::{CStr, c_char, c_uint, c_ulonglong, c_void};

pub type nvmlReturn_t = c_uint;
pub type nvmlDevice_t = *mut c_void;

pub const NVML_SUCCESS: nvmlReturn_t = 0;
pub const NVML_ERROR_INVALID_ARGUMENT: nvmlReturn_t = 2;
pub const NVML_ERROR_NOT_FOUND: nvmlReturn_t = 6;
pub const NVML_ERROR_INSUFFICIENT_SIZE: nvmlReturn_t = 7;
pub const NVML_ERROR_LIBRARY_NOT_FOUND: nvmlReturn_t = 12;
pub const NVML_ERROR_FUNCTION_NOT_FOUND: nvmlReturn_t = 13;

/// Bytes that are enough for a UUID as text (`NVML_DEVICE_UUID_V2_BUFFER_SIZE`).
pub const UUID_TEXT_LEN: usize = 96;

macro_rules! structs {
    ($($name:ident { $($field:ident: $kind:ty,)* })*) => { $(
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name { $(pub $field: $kind,)* }

        impl Default for $name {
            fn default() -> Self {
                // SAFETY: every field is an integer or a raw pointer: all zeros is valid.
                unsafe { std::mem::zeroed() }
            }
        }
    )* };
}

structs! {
    nvmlMemory_t { total: c_ulonglong, free: c_ulonglong, used: c_ulonglong, }
    nvmlMemory_v2_t { version: c_uint, total: c_ulonglong, reserved: c_ulonglong, free: c_ulonglong, used: c_ulonglong, }
    nvmlProcessInfo_v1_t { pid: c_uint, usedGpuMemory: c_ulonglong, }
    nvmlProcessInfo_v2_t { pid: c_uint, usedGpuMemory: c_ulonglong, gpuInstanceId: c_uint, computeInstanceId: c_uint, }
    nvmlProcessDetail_v1_t {
        pid: c_uint, usedGpuMemory: c_ulonglong, gpuInstanceId: c_uint, computeInstanceId: c_uint, usedGpuCcProtectedMemory: c_ulonglong,
    }
    nvmlProcessDetailList_t { version: c_uint, mode: c_uint, numProcArrayEntries: c_uint, procArray: *mut nvmlProcessDetail_v1_t, }
    nvmlProcessUtilizationSample_t {
        pid: c_uint, timeStamp: c_ulonglong, smUtil: c_uint, memUtil: c_uint, encUtil: c_uint, decUtil: c_uint,
    }
    nvmlProcessUtilizationInfo_v1_t {
        timeStamp: c_ulonglong, pid: c_uint, smUtil: c_uint, memUtil: c_uint, encUtil: c_uint, decUtil: c_uint, jpgUtil: c_uint, ofaUtil: c_uint,
    }
    nvmlProcessesUtilizationInfo_t {
        version: c_uint, processSamplesCount: c_uint, lastSeenTimeStamp: c_ulonglong, procUtilArray: *mut nvmlProcessUtilizationInfo_v1_t,
    }
}

/// The value of a structure's field `version`: its size, with its version in the highest byte.
pub const fn struct_version<T>(version: u32) -> c_uint {
    #[expect(clippy::cast_possible_truncation, reason = "structures of NVML are small")]
    let size = size_of::<T>() as u32;
    size | version << 24
}

/// Passes all rows to a macro in one call, each of the form `policy symbol fn(argument: type, ...);`. All functions return
/// `nvmlReturn_t`. The types must be in scope: `use sluice_driver_api::nvml::*;`.
///
/// Policies: `memory` (total, free and used are the client's), `list` (count and array; only the client's processes), `details` and
/// `utilization` (the same in a structure), `samples` (the same by time).
#[macro_export]
macro_rules! nvml_api {
    ($($callback:tt)+) => { $($callback)+! {
memory      nvmlDeviceGetMemoryInfo fn(device: nvmlDevice_t, memory: *mut nvmlMemory_t);
memory      nvmlDeviceGetMemoryInfo_v2 fn(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t);
list        nvmlDeviceGetComputeRunningProcesses fn(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t);
list        nvmlDeviceGetComputeRunningProcesses_v2 fn(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t);
list        nvmlDeviceGetComputeRunningProcesses_v3 fn(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t);
list        nvmlDeviceGetGraphicsRunningProcesses fn(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t);
list        nvmlDeviceGetGraphicsRunningProcesses_v2 fn(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t);
list        nvmlDeviceGetGraphicsRunningProcesses_v3 fn(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t);
list        nvmlDeviceGetMPSComputeRunningProcesses fn(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t);
list        nvmlDeviceGetMPSComputeRunningProcesses_v2 fn(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t);
list        nvmlDeviceGetMPSComputeRunningProcesses_v3 fn(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t);
details     nvmlDeviceGetRunningProcessDetailList fn(device: nvmlDevice_t, list: *mut nvmlProcessDetailList_t);
samples     nvmlDeviceGetProcessUtilization fn(device: nvmlDevice_t, samples: *mut nvmlProcessUtilizationSample_t, count: *mut c_uint, since: c_ulonglong);
utilization nvmlDeviceGetProcessesUtilizationInfo fn(device: nvmlDevice_t, info: *mut nvmlProcessesUtilizationInfo_t);
    } };
}

macro_rules! real_nvml {
    ($($policy:ident $symbol:ident fn($($argument:ident : $kind:ty),*);)*) => {
        real_nvml! { @fields
            $($symbol fn($($argument: $kind),*);)*
            nvmlDeviceGetCount_v2 fn(count: *mut c_uint);
            nvmlDeviceGetUUID fn(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint);
        }

        /// The symbols of all rows, in their order.
        pub const NVML_SYMBOLS: &[&CStr] = &[$(real_nvml!(@name $symbol)),*];
    };
    (@name $symbol:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
            Ok(symbol) => symbol,
            Err(_) => c"",
        }
    };
    (@fields $($symbol:ident fn($($argument:ident : $kind:ty),*);)*) => {
        /// The functions of a real library: those of the rows, and those that the hook calls. `None` if the library lacks it.
        #[derive(Clone, Copy, Debug)]
        pub struct RealNvml {
            $(pub $symbol: Option<unsafe extern "C" fn($($argument: $kind),*) -> nvmlReturn_t>,)*
        }

        impl RealNvml {
            /// A library without any function.
            pub const EMPTY: RealNvml = RealNvml { $($symbol: None,)* };

            /// Calls `resolve` for each symbol; a null result means that the library lacks it.
            ///
            /// # Safety
            /// A non-null result is the address of NVML's function with that name, and stays valid as long as the fields are called.
            pub unsafe fn load(mut resolve: impl FnMut(&CStr) -> *mut c_void) -> RealNvml {
                RealNvml { $(
                    $symbol: {
                        let address = resolve(const { real_nvml!(@name $symbol) });
                        // SAFETY: by this function's contract, a non-null address is a function of this type. A null one is `None`.
                        unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($kind),*) -> nvmlReturn_t>>(address) }
                    },
                )* }
            }
        }
    };
}
nvml_api!(real_nvml);

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes in nvml.h of CUDA 12 and 13, on x86-64.
    #[test]
    fn structures_have_the_sizes_of_the_header() {
        let sizes = [
            size_of::<nvmlMemory_t>(),
            size_of::<nvmlMemory_v2_t>(),
            size_of::<nvmlProcessInfo_v1_t>(),
            size_of::<nvmlProcessInfo_v2_t>(),
            size_of::<nvmlProcessDetail_v1_t>(),
            size_of::<nvmlProcessDetailList_t>(),
            size_of::<nvmlProcessUtilizationSample_t>(),
            size_of::<nvmlProcessUtilizationInfo_v1_t>(),
            size_of::<nvmlProcessesUtilizationInfo_t>(),
        ];
        assert_eq!(sizes, [24, 40, 16, 24, 32, 24, 32, 40, 24]);
        assert_eq!(struct_version::<nvmlMemory_v2_t>(2), 0x0200_0028);
    }
}
