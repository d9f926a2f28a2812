//! What happens when the library is loaded, and in the child of a fork.

use crate::{process, symbols};

/// Runs when the loader has mapped us, before or after other libraries' constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    symbols::prepare();
    // SAFETY: the handler only stores to atomics and closes descriptors, which is allowed in the child of a fork.
    let _registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// The child has one thread, no tracker, and the parent's descriptors. The CUDA driver does not work in it if the parent
/// had used it, so neither do we; if the parent had not, there is nothing to undo and the child starts afresh.
extern "C" fn in_child() {
    process::after_fork();
}
