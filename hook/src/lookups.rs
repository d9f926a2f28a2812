//! `dlsym` and `dlvsym`: return the hook's wrapper where the real look-up would have found a governed function of the driver or of NVML.
//!
//! Both are naked functions that call a helper and then *jump* to the real function, so that it sees the program's return address: the
//! meaning of `RTLD_NEXT` and `RTLD_DEFAULT` depends on the caller. All this code may run before `main`, inside the loader and inside a
//! memory allocator, so it does not allocate, lock or use thread-local storage. It needs nothing of this library's constructor.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering::*;

use sluice_driver_api::ENTRIES;

use crate::symbols::{DRIVER, Library, NVML, REAL_DLSYM, REAL_DLVSYM, is_ours, is_shim, prepare};
use crate::{exports, nvml};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "the hook has no `dlsym` for this processor: it is written in assembly for x86-64 and 64-bit ARM"
);

/// The result of a helper for its naked function: in `rax` and `rdx` on x86-64, in `x0` and `x1` on 64-bit ARM.
#[repr(C)]
struct Answer {
    address: *mut c_void,
    /// 0: call the real function.
    decided: usize,
}

impl Answer {
    const PASS: Self = Self { address: std::ptr::null_mut(), decided: 0 };

    fn with(address: *mut c_void) -> Self {
        Self { address, decided: 1 }
    }
}

/// libc's `dlsym`, with wrappers for governed driver functions.
///
/// # Safety
/// As libc documents it.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {helper}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rdx, rdx",
        "jz 2f",
        "ret",
        "2:",
        "jmp qword ptr [rip + {real}]",
        helper = sym answer_dlsym,
        real = sym REAL_DLSYM,
    );
    // `br x16` may enter a function that is protected by branch target identification; another register might not.
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "hint #34", // bti c
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {helper}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x17, 2f",
        "mov x0, x16",
        "ret",
        "2:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        helper = sym answer_dlsym,
        real = sym REAL_DLSYM,
    );
}

/// libc's `dlvsym`, with wrappers for governed driver functions.
///
/// # Safety
/// As libc documents it.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {helper}",
        "mov r11, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test r11, r11",
        "jz 2f",
        "ret",
        "2:",
        "jmp qword ptr [rip + {real}]",
        helper = sym answer_dlvsym,
        real = sym REAL_DLVSYM,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "hint #34", // bti c
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "bl {helper}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldr x2, [sp, #32]",
        "ldp x29, x30, [sp], #48",
        "cbz x17, 2f",
        "mov x0, x16",
        "ret",
        "2:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        helper = sym answer_dlvsym,
        real = sym REAL_DLVSYM,
    );
}

extern "C" fn answer_dlsym(handle: *mut c_void, name: *const c_char) -> Answer {
    prepare();
    answer(handle, name, |handle, name| {
        // SAFETY: `prepare` stored the address of libc's dlsym, or of `nothing`, which takes any arguments.
        let dlsym: Dlsym = unsafe { std::mem::transmute(REAL_DLSYM.load(Acquire)) };
        // SAFETY: the arguments are the program's own, or RTLD_NEXT.
        unsafe { dlsym(handle, name) }
    })
}

extern "C" fn answer_dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> Answer {
    prepare();
    answer(handle, name, |handle, name| {
        // SAFETY: `prepare` stored the address of libc's dlvsym, or of `nothing`, which takes any arguments.
        let dlvsym: Dlvsym = unsafe { std::mem::transmute(REAL_DLVSYM.load(Acquire)) };
        // SAFETY: the arguments are the program's own, or RTLD_NEXT.
        unsafe { dlvsym(handle, name, version) }
    })
}

/// The answer to a look-up; `real` calls the real function.
fn answer(
    handle: *mut c_void,
    name: *const c_char,
    real: impl Fn(*mut c_void, *const c_char) -> *mut c_void,
) -> Answer {
    let Some((library, wrapper)) = known(name) else { return Answer::PASS };
    let is_pseudo_handle = handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT;
    let found = if is_pseudo_handle { std::ptr::null_mut() } else { real(handle, name) };
    if is_pseudo_handle || is_ours(found) {
        // The searched scope begins with this library or before it, so it finds this library's exports, whether or not there is a driver
        // behind them. Under the driver's name that is right; otherwise only a driver's symbol counts.
        if is_shim() {
            return Answer::PASS;
        }
        let behind_us = real(libc::RTLD_NEXT, name);
        let wrapped = library.contains(behind_us).then_some(wrapper).flatten();
        return Answer::with(wrapped.unwrap_or(behind_us));
    }
    match library.contains(found).then_some(wrapper).flatten() {
        Some(wrapper) => Answer::with(wrapper),
        None => Answer::PASS,
    }
}

/// The library that has a function of this name, and the wrapper, if there is one; `None` for a name of no such library.
fn known(name: *const c_char) -> Option<(&'static Library, Option<*mut c_void>)> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller of dlsym passes a C string; bytes are read one by one and never behind its end.
    let mut bytes = (0..).map(|at| unsafe { *name.add(at).cast::<u8>() });
    match bytes.next() {
        // Names of the driver continue with a capital letter; those of CUDA's libraries (cudaMalloc, cublasCreate) do not.
        Some(b'c') => {
            let is_of_driver =
                bytes.next() == Some(b'u') && bytes.next().is_some_and(|b| b.is_ascii_uppercase());
            if !is_of_driver {
                return None;
            }
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
            let entry = sluice_driver_api::find_symbol(name)?;
            // The row's place among all rows is its distance from the first.
            let offset = std::ptr::from_ref(entry).addr().checked_sub(ENTRIES.as_ptr().addr())?;
            Some((&DRIVER, exports::wrapper(offset / size_of::<sluice_driver_api::Entry>())))
        }
        Some(b'n') if bytes.next() == Some(b'v') => {
            // SAFETY: as above.
            let wrapper = nvml::wrapper(unsafe { CStr::from_ptr(name) })?;
            Some((&NVML, Some(wrapper)))
        }
        _ => None,
    }
}
