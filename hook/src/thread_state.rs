//! The state that the hook keeps of each thread.

use sluice_hook_core::thread_state::ThreadState;

thread_local! {
    /// The state of this thread. Constant and without a destructor: access costs an address computation.
    static THREAD: ThreadState = const { ThreadState::empty() };
}

/// Runs `call` with the state of the calling thread.
///
/// `call` does not run inside `LocalKey::with`: the compiler makes that a function, to which a driver call's arguments would go through memory.
#[inline]
pub(crate) fn with_thread<R>(call: impl FnOnce(&ThreadState) -> R) -> R {
    let thread = THREAD.with(std::ptr::from_ref);
    // SAFETY: the state is constant-initialised and has no destructor, so it exists until its thread ends. `call` runs on this thread and
    // cannot keep the reference.
    call(unsafe { &*thread })
}
