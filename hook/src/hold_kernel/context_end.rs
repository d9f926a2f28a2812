//! The end of a context that may have an active hold kernel.

use std::sync::MutexGuard;

use super::contexts::{self, Contexts};
use super::release_hold;
use crate::process;

/// Keeps hold kernels away from a context that may be about to end, until the result is dropped.
pub(crate) fn begin_context_end(context: u64) -> ContextEnd {
    let preparing = contexts::preparing();
    let mut contexts = contexts::lock();
    if let Some(resources) = contexts.ready(context) {
        // The end of the context would wait for a hold kernel.
        let page = resources.page();
        for managed in
            process::devices().filter(|managed| managed.active_hold.page().is_some_and(|out| out.is(page)))
        {
            release_hold(managed, managed.device.hold_kernels().host_wait_begins(true));
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
