//! Threads of ours in a stranger's process: detached, with a stack of the size that we choose, and out of the way of its signals.
//!
//! What is sent to the process is for the program's threads. What a thread does to itself is not blocked: the kernel ends a process at a
//! blocked fault without the program's handler, which may be the one that writes its crash report, having been asked.

use std::ffi::{CStr, c_int, c_void};

/// Enough for the driver's calls; threads of programs with a small stack limit must still start.
pub(crate) const SMALL_STACK: usize = 256 * 1024;

/// Signals that a thread brings on itself.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// What a thread does with its argument.
pub(crate) type Body = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a thread with a stack of so many bytes; `false` if the system gives none. The argument must be valid for as long as the thread uses it.
pub(crate) fn start(stack: usize, body: Body, argument: *mut c_void) -> bool {
    // SAFETY: the attributes are initialised before use and destroyed once; masks are valid for the calls; the argument is
    // the body's affair. The signal mask is put back, and a thread inherits the one that its creator had.
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

/// Names the calling thread (at most 15 bytes) and makes its timers exact: what our threads wait for is microseconds apart,
/// and the default slack of 50 would be most of that.
pub(crate) fn settle_in(name: &CStr) {
    // SAFETY: both calls concern the calling thread only; the name is a C string.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::prctl(libc::PR_SET_TIMERSLACK, 1usize);
    }
}
