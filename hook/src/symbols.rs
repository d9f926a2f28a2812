//! Symbols of the loaded libraries: libc's own functions behind those that this library interposes, and which file of the driver and of NVML
//! the program uses.
//!
//! All this code may run before `main`, inside the loader and inside a memory allocator, so it does not allocate, lock or use thread-local
//! storage. What it needs is found at the first use, so it does not matter whether this library's constructor has run.

mod elf;

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering::*};

/// The version of this hook's interface. By this symbol one copy of the hook recognises another.
#[unsafe(no_mangle)]
pub(crate) static sluice_hook_marker: u32 = 1;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// libc's `dlsym`, or a function that returns null; null until [`prepare`] has run.
pub(crate) static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// The same for `dlvsym`.
pub(crate) static REAL_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static REAL_IOCTL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// A library whose functions have wrappers here.
pub(crate) struct Library {
    /// The base address of the file that the program uses, once one of its symbols was seen.
    base: AtomicPtr<c_void>,
    /// Its name; the loader keeps the string for as long as the library is loaded.
    name: AtomicPtr<c_char>,
    /// The wrappers call this file from now on. Functions of another file get no wrappers: their handles mean nothing to this one.
    kept: AtomicBool,
}

impl Library {
    const fn unseen() -> Self {
        Self {
            base: AtomicPtr::new(std::ptr::null_mut()),
            name: AtomicPtr::new(std::ptr::null_mut()),
            kept: AtomicBool::new(false),
        }
    }

    /// Whether the address lies in a file of the driver other than this library, in this library's namespace.
    pub(crate) fn contains(&self, address: *mut c_void) -> bool {
        let Some(place) = elf::place(address) else { return false };
        if place.dli_fbase == self.base.load(Acquire) {
            // The program may have unloaded the file and loaded it again, at the same address and with another string.
            self.name.store(place.dli_fname.cast_mut(), Release);
            return true;
        }
        if self.kept.load(Acquire) || elf::is_ours(address) || !is_named_like_driver(place.dli_fname) {
            return false;
        }
        // This library opens the driver in its own namespace. Wrappers would call that one with objects of the other.
        if !elf::is_in_our_namespace(address) {
            return false;
        }
        self.name.store(place.dli_fname.cast_mut(), Release);
        self.base.store(place.dli_fbase, Release);
        true
    }

    /// The path of the file that the program has loaded, if any; `symbol` is one of its functions.
    fn path_seen(&self, symbol: &CStr) -> Option<CString> {
        if self.base.load(Acquire).is_null() && !is_shim() {
            self.contains(real_dlsym(libc::RTLD_NEXT, symbol));
        }
        let name = self.name.load(Acquire);
        if name.is_null() {
            return None;
        }
        // SAFETY: the string belongs to a library whose symbol the program has just looked up, so it is loaded.
        Some(unsafe { CStr::from_ptr(name) }.to_owned())
    }
}

pub(crate) static DRIVER: Library = Library::unseen();
pub(crate) static NVML: Library = Library::unseen();

/// Whether this library was loaded under the driver's name: 0 unknown, 1 no, 2 yes.
static SHIM: AtomicU8 = AtomicU8::new(0);

/// Whether an address lies in this library.
pub(crate) fn is_ours(address: *const c_void) -> bool {
    elf::is_ours(address)
}

/// The path of this library.
pub(crate) fn own_path() -> Option<PathBuf> {
    let ours = std::ptr::from_ref(&sluice_hook_marker).cast_mut().cast();
    let name = elf::place(ours)?.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: dladdr returns C strings that live as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The two libraries have no function name in common, and the simulator's file has both names.
fn is_named_like_driver(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: dladdr returns C strings that live as long as the library is loaded.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    name.starts_with(b"libcuda.so") || name.starts_with(b"libnvidia-ml.so")
}

/// Whether this library replaces the driver under its name.
pub(crate) fn is_shim() -> bool {
    match SHIM.load(Relaxed) {
        0 => {
            let ours = std::ptr::from_ref(&sluice_hook_marker).cast_mut().cast();
            let shim = elf::place(ours).is_some_and(|place| is_named_like_driver(place.dli_fname));
            SHIM.store(if shim { 2 } else { 1 }, Relaxed);
            shim
        }
        known => known == 2,
    }
}

/// The path of the driver file that the program has loaded, if any.
pub(crate) fn driver_path_seen() -> Option<CString> {
    DRIVER.path_seen(c"cuInit")
}

/// The path of NVML's file that the program has loaded, if any.
pub(crate) fn nvml_path_seen() -> Option<CString> {
    NVML.path_seen(c"nvmlInit_v2")
}

/// The wrappers call the NVML that has this function, from now on.
pub(crate) fn keep_nvml(function: *mut c_void) {
    NVML.contains(function);
    NVML.kept.store(true, Release);
}

/// libc's dlsym, for calls of this library.
// The tables of the real libraries call it for each of 700 functions: inlined there it takes 180 KiB of code.
#[inline(never)]
pub(crate) fn real_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    prepare();
    // SAFETY: `prepare` stored the address of libc's dlsym, or of `nothing`, which takes any arguments.
    let dlsym: Dlsym = unsafe { std::mem::transmute(REAL_DLSYM.load(Acquire)) };
    // SAFETY: the handle is RTLD_NEXT or one that dlopen gave us; the name is a C string.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// The next definition of `ioctl`; null if there is none.
#[inline]
pub(crate) fn real_ioctl() -> *mut c_void {
    let found = REAL_IOCTL.load(Acquire);
    if found.is_null() {
        prepare();
        return REAL_IOCTL.load(Acquire);
    }
    found
}

/// Finds libc's own functions, once. Two threads that do it at once store the same addresses.
pub(crate) fn prepare() {
    if REAL_DLSYM.load(Acquire).is_null() {
        let found = elf::find([c"dlsym", c"dlvsym", c"ioctl"]);
        let or_nothing =
            |address: *mut c_void| if address.is_null() { nothing as *mut c_void } else { address };
        REAL_IOCTL.store(found[2], Release);
        REAL_DLVSYM.store(or_nothing(found[1]), Release);
        REAL_DLSYM.store(or_nothing(found[0]), Release);
    }
}

/// Replaces a function that libc does not have: returns null.
extern "C" fn nothing() -> *mut c_void {
    std::ptr::null_mut()
}
