//! The contexts of this process with resources for hold kernels, and those whose resources are being made.

use std::sync::{Mutex, MutexGuard, TryLockError};

use sluice_hook_core::hold_kernel;
use sluice_hook_core::lock;

use super::release_hold;
use super::resources::Resources;
use crate::process;

pub(super) static CONTEXTS: Mutex<Contexts> = Mutex::new(Contexts::none());
/// Held while resources of a context are made, and while a context may end.
pub(super) static PREPARING: Mutex<()> = Mutex::new(());

/// See [`sluice_hook_core::hold_kernel::HoldContexts`].
pub(super) type Contexts = hold_kernel::HoldContexts<Resources>;

/// The contexts, unless another thread has the lock: no thread waits here on the way to a launch.
pub(super) fn try_lock() -> Option<MutexGuard<'static, Contexts>> {
    match CONTEXTS.try_lock() {
        Ok(contexts) => Some(contexts),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Keeps hold kernels away from a context that may be about to end, until the result is dropped.
pub(crate) fn begin_context_end(context: u64) -> ContextEnd {
    let preparing = lock(&PREPARING);
    let mut contexts = lock(&CONTEXTS);
    if let Some(resources) = contexts.ready(context) {
        // The end of the context would wait for a hold kernel.
        let page = resources.page();
        for managed in
            process::devices().filter(|managed| managed.active_hold.page().is_some_and(|out| out.is(page)))
        {
            release_hold(managed, managed.device.hold_kernels.with(|state| state.host_wait_begins(true)));
        }
    }
    ContextEnd { context, contexts, _preparing: preparing }
}

/// See [`begin_context_end`].
pub(crate) struct ContextEnd {
    context: u64,
    contexts: MutexGuard<'static, Contexts>,
    _preparing: MutexGuard<'static, ()>,
}

impl ContextEnd {
    /// Forgets the context, which has ended.
    pub(crate) fn ended(mut self) {
        if let Some(resources) = self.contexts.remove(self.context) {
            resources.page().recycle();
        }
    }
}
