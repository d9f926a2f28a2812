//! Contexts in which the driver is about to wait for all that they have been given: it loads a module, say.

use std::collections::BTreeMap;

use crate::ids::Context;

/// Threads in such calls, by context.
#[derive(Debug, Default)]
pub(crate) struct ModuleLoads(BTreeMap<Context, u32>);

impl ModuleLoads {
    /// A thread is about to make one.
    pub(crate) fn begin(&mut self, context: Context) {
        *self.0.entry(context).or_default() += 1;
    }

    /// It has come back.
    pub(crate) fn end(&mut self, context: Context) {
        if let Some(threads) = self.0.get_mut(&context) {
            *threads -= 1;
            if *threads == 0 {
                self.0.remove(&context);
            }
        }
    }

    /// Whether a thread is in one.
    pub(crate) fn is_loading(&self, context: Context) -> bool {
        self.0.contains_key(&context)
    }
}
