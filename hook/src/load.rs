//! What runs when this library is loaded, and in the child of a fork.

use crate::{channel_groups, memory_accounts, preempt, process, residency, symbols};

/// Runs when the loader has mapped this library, before or after other libraries' constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    symbols::prepare();
    // SAFETY: the handler only stores to atomics and closes descriptors, which is allowed in the child of a fork.
    let _registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// The child has one thread, no tracker, and the parent's descriptors. If the parent had used the CUDA driver, the driver does not work
/// in the child, and neither does the hook. If it had not, there is nothing to undo and the child starts afresh.
extern "C" fn in_child() {
    channel_groups::after_fork();
    preempt::after_fork();
    memory_accounts::after_fork();
    process::after_fork();
    residency::abandon();
}
