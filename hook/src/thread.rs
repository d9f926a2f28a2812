//! Threads of ours in a stranger's process: detached, all signals blocked, and with a small stack.

use std::ffi::c_void;

/// Enough for the driver's calls; threads of programs with a small stack limit must still start.
const STACK: usize = 256 * 1024;

/// What a thread does with its argument.
pub(crate) type Body = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a thread; `false` if the system gives none. The argument must be valid for as long as the thread uses it.
pub(crate) fn start(body: Body, argument: *mut c_void) -> bool {
    // SAFETY: the attributes are initialised before use and destroyed once; masks are valid for the calls; the argument is
    // the body's affair. The signal mask is put back, and a thread inherits the one that its creator had.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_attr_init(&raw mut attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut thread = 0;
        let created = libc::pthread_create(&raw mut thread, &raw const attributes, body, argument);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        created == 0
    }
}
