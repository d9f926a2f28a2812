//! Threads of the hook in another program's process: detached, with a chosen stack size, and with signals blocked.
//!
//! Signals to the process are for the program's threads. Faults of a thread itself are not blocked: the kernel ends a process at a blocked
//! fault without calling the program's handler, and that handler may write the program's crash report.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

use crate::counters::COUNTERS;
use crate::symbols;

/// Enough for the driver's calls, besides what the C library takes for thread-local storage. Small, so that threads also start in programs with a small stack limit.
pub(crate) const SMALL_STACK_BYTES: usize = 256 * 1024;

/// Enough for the driver's compiler, and for callbacks of the program.
pub(crate) const LARGE_STACK_BYTES: usize = 8 << 20;

/// Some C libraries refuse stacks that are not a multiple of a page. This is the largest page of the supported kernels: 64-bit ARM has
/// pages of 4, 16 or 64 KiB.
const PAGE_BYTES: usize = 64 * 1024;

/// Signals that a thread raises by its own faults.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

struct Body {
    name: &'static CStr,
    run: Box<dyn FnOnce() + Send>,
}

/// Bytes of a thread's stack that glibc takes for itself: above all the thread-local storage of all libraries, which may exceed
/// [`SMALL_STACK_BYTES`]. 0 with another C library.
fn reserved_bytes(attributes: *const libc::pthread_attr_t) -> usize {
    type MinimumStack = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    let found = symbols::real_dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack");
    if found.is_null() {
        return 0;
    }
    // SAFETY: glibc's function of this name has this signature; language runtimes call it.
    let minimum = unsafe { std::mem::transmute::<*mut c_void, MinimumStack>(found) };
    // SAFETY: the caller passes initialised attributes.
    unsafe { minimum(attributes) }
}

/// Starts a thread with a name of at most 15 bytes and `stack` bytes of stack for its calls; `false` if the system refuses.
pub(crate) fn start(name: &'static CStr, stack: usize, run: impl FnOnce() + Send + 'static) -> bool {
    let body = Box::into_raw(Box::new(Body { name, run: Box::new(run) }));
    // SAFETY: the attributes are initialised before use and destroyed once; masks are valid for the calls; `run_body` takes the body.
    // The signal mask is restored, and a thread inherits the mask that its creator had.
    let created = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        let mut thread = 0;
        libc::pthread_attr_init(&raw mut attributes) == 0 && {
            libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
            let size = stack.saturating_add(reserved_bytes(&raw const attributes));
            libc::pthread_attr_setstacksize(&raw mut attributes, size.next_multiple_of(PAGE_BYTES));
            libc::sigfillset(&raw mut all);
            for fault in FAULTS {
                libc::sigdelset(&raw mut all, fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let result = libc::pthread_create(&raw mut thread, &raw const attributes, run_body, body.cast());
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            libc::pthread_attr_destroy(&raw mut attributes);
            result == 0
        }
    };
    if !created {
        // SAFETY: no thread has taken the body.
        drop(unsafe { Box::from_raw(body) });
    }
    created
}

extern "C" fn run_body(body: *mut c_void) -> *mut c_void {
    // SAFETY: `start` made this body for this thread alone.
    let Body { name, run } = *unsafe { Box::from_raw(body.cast::<Body>()) };
    // SAFETY: both calls concern the calling thread only; the name is a C string. The hook's threads sleep for microseconds, and the
    // default timer slack is 50 us.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::prctl(libc::PR_SET_TIMERSLACK, 1usize);
    }
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        COUNTERS.panics.fetch_add(1, Relaxed);
    }
    std::ptr::null_mut()
}
