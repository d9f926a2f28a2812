//! The contexts of this process with resources for hold kernels, and those whose resources are being made.

use std::sync::{Mutex, MutexGuard, TryLockError};

use sluice_hook_core::hold_kernel;
use sluice_hook_core::lock;

use super::copy_kernels;
use super::release::{count, release_hold};
use super::resources::Resources;
use crate::process::{self, ManagedDevice};

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

/// Keeps hold kernels and the copy kernel away from a context that may be about to end, until the result is dropped.
pub(crate) fn begin_context_end(context: u64) -> ContextEnd {
    let preparing = lock(&PREPARING);
    let mut contexts = lock(&CONTEXTS);
    // From here on: once the driver has ended the context, another thread may get the same handle for a new one.
    copy_kernels::withdraw(context);
    let page = contexts.ready(context).map(|resources| resources.page());
    let uses = |managed: &&ManagedDevice| page.zip(managed.active_hold.page()).is_some_and(|(a, b)| a.is(b));
    let holder = process::devices().find(uses);
    if let Some(managed) = holder {
        // The end of the context would wait for a hold kernel.
        release_hold(managed, managed.device.hold_kernels.with(|state| state.host_wait_begins(true)));
    }
    ContextEnd { context, contexts, holder, _preparing: preparing }
}

/// See [`begin_context_end`].
pub(crate) struct ContextEnd {
    context: u64,
    contexts: MutexGuard<'static, Contexts>,
    /// The device of which a hold kernel was launched last in this context.
    holder: Option<&'static ManagedDevice>,
    _preparing: MutexGuard<'static, ()>,
}

impl ContextEnd {
    /// Forgets the context, which has ended.
    pub(crate) fn ended(mut self) {
        if let Some(mut resources) = self.contexts.remove(self.context) {
            self.holder.into_iter().for_each(|managed| count(managed, &mut resources));
            resources.page().recycle();
        }
    }
}

impl Drop for ContextEnd {
    /// Publishes the copy kernel again if the context has not ended.
    fn drop(&mut self) {
        if let Some(resources) = self.contexts.ready(self.context) {
            copy_kernels::publish(self.context, resources.copy_kernel());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold_kernel::copy_kernel;

    const CONTEXT: u64 = 7 << 40;

    #[test]
    fn copy_kernel_of_a_context_that_may_end_is_withdrawn_until_it_has_not_ended() {
        lock(&CONTEXTS).request(CONTEXT);
        let resources = Resources::without_driver();
        copy_kernels::publish(CONTEXT, resources.copy_kernel());
        lock(&CONTEXTS).set_prepared(CONTEXT, Some(resources));
        assert!(copy_kernel(CONTEXT).is_some());
        let end = begin_context_end(CONTEXT);
        assert_eq!(copy_kernel(CONTEXT), None, "the driver may have ended it, and reused its handle");
        drop(end);
        assert!(copy_kernel(CONTEXT).is_some(), "the driver has refused to end it");
        begin_context_end(CONTEXT).ended();
        assert_eq!(copy_kernel(CONTEXT), None);
    }
}
