//! Contexts in which the driver is about to wait for all submitted work, for example to load a module.

use std::collections::BTreeMap;

use crate::ids::Context;

/// Threads in such calls, by context.
#[derive(Debug, Default)]
pub(crate) struct ModuleLoads(BTreeMap<Context, u32>);

impl ModuleLoads {
    /// A thread is about to make such a call.
    pub(crate) fn begin(&mut self, context: Context) {
        *self.0.entry(context).or_default() += 1;
    }

    /// Such a call has returned.
    pub(crate) fn end(&mut self, context: Context) {
        if let Some(threads) = self.0.get_mut(&context) {
            *threads -= 1;
            if *threads == 0 {
                self.0.remove(&context);
            }
        }
    }

    /// Whether a thread is in such a call.
    pub(crate) fn is_loading(&self, context: Context) -> bool {
        self.0.contains_key(&context)
    }
}
