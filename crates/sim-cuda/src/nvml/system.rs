//! The library and the driver as a whole.

use super::session::{close, open, sockets};
use super::{Error, nvml, put, put_text};
use sluice_driver_api::types::{c_char, c_int, c_uint};
use sluice_sim::client;

nvml! {
    fn nvmlInit_v2() {
        open()
    }

    fn nvmlInit() {
        open()
    }

    fn nvmlInitWithFlags(_flags: c_uint) {
        open()
    }

    fn nvmlShutdown() {
        close()
    }

    fn nvmlSystemGetNVMLVersion(out: *mut c_char, size: c_uint) {
        put_text(out, "13.580.159.04", size)
    }

    fn nvmlSystemGetCudaDriverVersion(out: *mut c_int) {
        put(out, 13_000)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) {
        put(out, 13_000)
    }
}

nvml! { once initialised:
    fn nvmlSystemGetDriverVersion(out: *mut c_char, size: c_uint) {
        let info = sockets().iter().find_map(|socket| client::gpu_info(socket).ok());
        put_text(out, &info.ok_or(Error::DriverNotLoaded)?.driver_version, size)
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(error: c_uint) -> *const c_char {
    let text = match error {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        15 => c"GPU is lost",
        25 => c"Argument Version Mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
