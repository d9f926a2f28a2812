//! Threads of the hook in another program's process: detached, with a chosen stack size, and with signals blocked.
//!
//! Signals to the process are for the program's threads. Faults of a thread itself are not blocked: the kernel ends a process at a blocked
//! fault without calling the program's handler, and that handler may write the program's crash report.

use std::ffi::{CStr, c_int, c_void};

/// Enough for the driver's calls. Small, so that threads also start in programs with a small stack limit.
pub(crate) const SMALL_STACK_BYTES: usize = 256 * 1024;

/// Signals that a thread raises by its own faults.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// The function that a thread runs with its argument.
pub(crate) type Body = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a thread with a stack of `stack` bytes; `false` if the system refuses. The argument must be valid as long as the thread uses it.
pub(crate) fn start(stack: usize, body: Body, argument: *mut c_void) -> bool {
    // SAFETY: the attributes are initialised before use and destroyed once; masks are valid for the calls; `body` defines the argument.
    // The signal mask is restored, and a thread inherits the mask that its creator had.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_attr_init(&raw mut attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&raw mut attributes, stack);
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for fault in FAULTS {
            libc::sigdelset(&raw mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut thread = 0;
        let created = libc::pthread_create(&raw mut thread, &raw const attributes, body, argument);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        created == 0
    }
}

/// Names the calling thread (at most 15 bytes) and sets its timer slack to 1 ns. The hook's threads sleep for microseconds, and the default
/// slack is 50 µs.
pub(crate) fn configure_current(name: &CStr) {
    // SAFETY: both calls concern the calling thread only; the name is a C string.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::prctl(libc::PR_SET_TIMERSLACK, 1usize);
    }
}
