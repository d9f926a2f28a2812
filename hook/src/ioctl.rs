//! `ioctl`: passes every call to the next definition, and observes the NVIDIA driver's requests that succeeded.
//!
//! It runs in other programs' processes before `main`, in forked children and on any thread. A request that is not the NVIDIA driver's is
//! passed on after one comparison: no lock, no allocation, no thread-local storage.

use std::ffi::{c_int, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use sluice_nvrm::abi::Request;

use crate::channel_groups::{self, Observed};
use crate::{fork, process, real, symbols};

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int;

/// libc's `ioctl`. It is variadic there, with at most one more argument. On x86-64 and on 64-bit ARM under Linux that argument is in the
/// third argument register in both cases.
///
/// # Safety
/// As libc documents it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, number: c_ulong, argument: *mut c_void) -> c_int {
    match Request::of(number) {
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { next(fd, number, argument) },
        // SAFETY: as above.
        Some(request) => unsafe { perhaps_nvidia(fd, number, argument, request) },
    }
}

/// The next definition of `ioctl` after this library's.
///
/// # Safety
/// As libc documents it.
#[inline]
unsafe fn next(fd: c_int, number: c_ulong, argument: *mut c_void) -> c_int {
    let found = symbols::real_ioctl();
    if found.is_null() {
        // SAFETY: the caller's arguments, unchanged; sets errno as libc's function does.
        let result = unsafe { libc::syscall(libc::SYS_ioctl, fd, number, argument) };
        return c_int::try_from(result).unwrap_or(-1);
    }
    // SAFETY: a function of this name in a loaded library is ioctl.
    let ioctl: Ioctl = unsafe { std::mem::transmute(found) };
    // SAFETY: the caller's arguments, unchanged.
    unsafe { ioctl(fd, number, argument) }
}

/// # Safety
/// As libc documents it for `ioctl`.
#[cold]
unsafe fn perhaps_nvidia(fd: c_int, number: c_ulong, argument: *mut c_void, request: Request) -> c_int {
    if !request.is_known() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { next(fd, number, argument) };
    }
    let before = channel_groups::registry_changes();
    let errno = Errno::now();
    // SAFETY: the caller's arguments, unchanged.
    let mut result = unsafe { next(fd, number, argument) };
    let mut simulated = false;
    if result == -1
        && Errno::now().0 == libc::ENOTTY
        && let Some(simulator) = real::simulated_ioctl()
    {
        errno.put_back();
        // SAFETY: the caller's arguments, unchanged, for the simulated driver's own function.
        result = unsafe { simulator(fd, number, argument) };
        simulated = true;
    }
    if result == 0 {
        let errno = Errno::now();
        let observed = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the file is checked first. If it is the driver's, the driver has accepted the request, so the argument is the block
            // that the number declares. The argument of another file is not read.
            announce(unsafe { channel_groups::observe_ioctl(fd, request, argument, before, simulated) });
        }));
        if observed.is_err() {
            let _given_up = catch_unwind(|| announce(channel_groups::disable_after_panic()));
        }
        errno.put_back();
    }
    result
}

/// Reports a change of the groups on every device's page: until it is announced, a manager that finds the groups from outside knows that
/// this hook has seen them. A complete change is then announced.
fn announce(observed: Observed) {
    let (Observed::Incomplete(change) | Observed::Changed(change)) = observed else { return };
    // In the child of a fork the pages are the parent's.
    if !fork::has_forked() {
        process::devices().for_each(|managed| managed.device.link.report_unannounced(change));
    }
    if matches!(observed, Observed::Changed(_)) {
        process::wake_trackers();
    }
}

/// A value of the calling thread's errno.
struct Errno(c_int);

impl Errno {
    fn now() -> Self {
        // SAFETY: the location is the calling thread's and valid for its life.
        Self(unsafe { *libc::__errno_location() })
    }

    fn put_back(&self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
