//! Contexts that threads are about to end, or may end, and what the engine may still do with their objects.

use std::collections::BTreeMap;

use crate::ids::Context;

/// Threads that are about to end one context.
#[derive(Debug, Default)]
struct EndingContext {
    /// All such threads. While there is one, nothing of the context is preempted.
    threads: u32,
    /// Those in the driver's call, or about to make it. While there is one, the engine uses nothing of the context.
    quiesced: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct EndingContexts {
    contexts: BTreeMap<Context, EndingContext>,
    /// Threads that use an event in the driver without a stream that keeps the event's context alive.
    pub(crate) event_uses: u32,
}

impl EndingContexts {
    /// A thread is about to end the context.
    pub(crate) fn begin(&mut self, context: Context) {
        self.contexts.entry(context).or_default().threads += 1;
    }

    /// Nothing of the context is in use, nor will be.
    pub(crate) fn mark_quiesced(&mut self, context: Context) {
        self.contexts.entry(context).or_default().quiesced += 1;
    }

    /// A thread that had quiesced the context has ended it, or has not.
    pub(crate) fn finish(&mut self, context: Context) {
        let Some(ending) = self.contexts.get_mut(&context) else { return };
        ending.threads = ending.threads.saturating_sub(1);
        ending.quiesced = ending.quiesced.saturating_sub(1).min(ending.threads);
        if ending.threads == 0 {
            self.contexts.remove(&context);
        }
    }

    /// Whether a thread is about to end the context.
    pub(crate) fn is_ending(&self, context: Context) -> bool {
        self.contexts.contains_key(&context)
    }

    /// Whether nothing of the context may be used.
    pub(crate) fn is_quiesced(&self, context: Context) -> bool {
        self.contexts.get(&context).is_some_and(|ending| ending.quiesced > 0)
    }

    /// Whether there is a context of which nothing may be used. An event does not tell its context.
    pub(crate) fn is_any_quiesced(&self) -> bool {
        self.contexts.values().any(|ending| ending.quiesced > 0)
    }
}
