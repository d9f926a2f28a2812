//! The real NVML: its library and its functions. The hook opens no NVML by itself: it calls the library that the program has loaded.

use std::ffi::{CStr, c_void};

use sluice_driver_api::nvml::*;

use crate::leaked::Leaked;
use crate::symbols;

static TABLE: Leaked<RealNvml> = Leaked::none();
static NOTHING: RealNvml = RealNvml::EMPTY;

/// The functions of the library that the program has loaded; none if it has loaded none.
pub(crate) fn real() -> &'static RealNvml {
    TABLE.get().unwrap_or_else(find)
}

/// The result of a function that the library does not have.
#[cold]
pub(crate) fn missing() -> nvmlReturn_t {
    if TABLE.get().is_some() { NVML_ERROR_FUNCTION_NOT_FOUND } else { NVML_ERROR_LIBRARY_NOT_FOUND }
}

#[cold]
fn find() -> &'static RealNvml {
    let path = symbols::nvml_path_seen();
    let Some(handle) = path.as_deref().and_then(open).or_else(|| open(c"libnvidia-ml.so.1")) else {
        return &NOTHING;
    };
    // SAFETY: the library has NVML's entry function and is not this hook, so these symbols are functions with NVML's ABI. The handle is
    // never closed.
    let table = unsafe { RealNvml::load(|symbol| symbols::real_dlsym(handle, symbol)) };
    symbols::keep_nvml(symbols::real_dlsym(handle, c"nvmlInit_v2"));
    TABLE.publish(table)
}

/// A handle of a loaded library, if it is NVML and not this hook.
fn open(path: &CStr) -> Option<*mut c_void> {
    // SAFETY: `path` is a C string; a library that is loaded already runs no constructors.
    let handle =
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    let is_hook = !symbols::real_dlsym(handle, c"sluice_hook_marker").is_null();
    if !is_hook && !symbols::real_dlsym(handle, c"nvmlInit_v2").is_null() {
        return Some(handle);
    }
    // SAFETY: the handle came from dlopen above and is not used again.
    unsafe { libc::dlclose(handle) };
    None
}
