//! The real driver: its library and its functions.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsString, c_int, c_ulong, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use sluice_driver_api::{CUresult, RealDriver};

use crate::leaked::Leaked;
use crate::symbols;

// SAFETY: the section has no meaning to the linker or the loader. It puts what each launch reads side by side: a launch of the driver
// evicts the first-level caches, and each line that the hook then reads costs about 5 ns.
#[unsafe(link_section = "sluice_launch")]
static TABLE: Leaked<RealDriver> = Leaked::none();
static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// `sluiceSimIoctl` of the library that was opened.
static SIMULATED: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static NOTHING: RealDriver = RealDriver::EMPTY;

/// Paths at which driver packages and container runtimes install the library.
const STANDARD_PATHS: &[&CStr] = &[
    c"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    c"/lib/x86_64-linux-gnu/libcuda.so.1",
    c"/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    c"/lib/aarch64-linux-gnu/libcuda.so.1",
    c"/usr/lib64/libcuda.so.1",
    c"/usr/lib/libcuda.so.1",
    c"/usr/local/nvidia/lib64/libcuda.so.1",
    c"/usr/local/nvidia/lib/libcuda.so.1",
    c"/usr/lib/wsl/lib/libcuda.so.1",
    c"/run/opengl-driver/lib/libcuda.so.1",
    c"/usr/local/cuda/compat/libcuda.so.1",
];

thread_local! {
    /// This thread is loading the library; a constructor of a library that it loads may call the driver.
    static LOADING: Cell<bool> = const { Cell::new(false) };
}

/// The real driver's functions; none if there is no driver.
#[inline]
pub(crate) fn table() -> &'static RealDriver {
    TABLE.get().unwrap_or_else(find)
}

/// The result of a function that the real driver does not have.
#[cold]
pub(crate) fn missing() -> CUresult {
    if TABLE.get().is_none() { CUresult::ERROR_NO_DEVICE } else { CUresult::ERROR_NOT_FOUND }
}

/// The address that the real driver's own symbol table gives for `symbol`.
pub(crate) fn symbol(symbol: &CStr) -> *mut c_void {
    let _table = table();
    let handle = HANDLE.load(Acquire);
    if handle.is_null() { std::ptr::null_mut() } else { symbols::real_dlsym(handle, symbol) }
}

/// The simulated driver's own `ioctl`.
pub(crate) type SimulatedIoctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// The simulated driver's `ioctl`, if a driver is open and it is the simulated one. Opens nothing and looks no symbol up, because the
/// calling thread may be inside the loader.
pub(crate) fn simulated_ioctl() -> Option<SimulatedIoctl> {
    let found = SIMULATED.load(Acquire);
    // SAFETY: only the simulator's library has a function of this name, and this is its signature.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, SimulatedIoctl>(found) })
}

/// Finds the library and reads its symbols. Without a lock, because loading runs other libraries' constructors. If two threads do it at
/// once, the first table stays.
#[cold]
fn find() -> &'static RealDriver {
    if LOADING.replace(true) {
        return &NOTHING;
    }
    let found = open_any();
    LOADING.set(false);
    let Some(handle) = found else { return &NOTHING };
    // SAFETY: symbols of a library that is the driver (it defines cuInit and is not this hook) are functions with the ABI that the
    // table states, and the handle is never closed.
    let table = unsafe { RealDriver::load(|symbol| symbols::real_dlsym(handle, symbol)) };
    HANDLE.store(handle, Release);
    SIMULATED.store(symbols::real_dlsym(handle, c"sluiceSimIoctl"), Release);
    TABLE.publish(table)
}

fn open_any() -> Option<*mut c_void> {
    if let Some(path) = std::env::var_os("SLUICE_REAL_LIBCUDA").filter(|path| !path.is_empty()) {
        // A configured path excludes all others.
        return open(&c_string(path)?, 0);
    }
    // First the driver file that the program itself has loaded.
    symbols::driver_path_seen()
        .and_then(|path| open(&path, libc::RTLD_NOLOAD))
        .or_else(|| open(c"libcuda.so.1", 0))
        .or_else(|| library_path().iter().find_map(|path| open(path, 0)))
        .or_else(|| STANDARD_PATHS.iter().find_map(|path| open(path, 0)))
}

/// `libcuda.so.1` in each directory of `LD_LIBRARY_PATH`.
fn library_path() -> Vec<CString> {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .filter_map(|directory| c_string(directory.join("libcuda.so.1").into_os_string()))
        .collect()
}

fn c_string(path: OsString) -> Option<CString> {
    CString::new(path.into_vec()).ok()
}

/// Opens a library if it is a driver, and not this hook under another name.
fn open(path: &CStr, flags: i32) -> Option<*mut c_void> {
    // SAFETY: `path` is a C string; loading runs the library's constructors, which is what the program asked for when it
    // called a driver function.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL | flags) };
    if handle.is_null() {
        return None;
    }
    let is_hook = !symbols::real_dlsym(handle, c"sluice_hook_marker").is_null();
    let is_driver = !symbols::real_dlsym(handle, c"cuInit").is_null();
    if is_driver && !is_hook {
        return Some(handle);
    }
    // SAFETY: the handle came from dlopen above and is not used again.
    unsafe { libc::dlclose(handle) };
    None
}
