//! The contexts of a process that use hold kernels, by the driver's handles.
//!
//! The driver gives the handle of a context that has ended to a later one, so nothing may be kept of a context that has ended.

/// The state of a context; `R` are the resources of its hold kernels.
#[derive(Debug, PartialEq, Eq)]
pub enum ContextState<R> {
    /// Its resources are being made, or are to be made.
    Preparing,
    /// It can run hold kernels.
    Ready(R),
    /// It cannot run hold kernels.
    Unable,
}

/// All existing contexts for which a hold kernel was ever requested.
#[derive(Debug)]
pub struct HoldContexts<R>(Vec<(u64, ContextState<R>)>);

impl<R> HoldContexts<R> {
    /// No context.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The state of a context; `None` if no hold kernel was requested for it, or it has ended.
    pub fn get(&mut self, context: u64) -> Option<&mut ContextState<R>> {
        self.0.iter_mut().find(|(known, _)| *known == context).map(|(_, state)| state)
    }

    /// The resources of a context that can run hold kernels.
    pub fn ready(&mut self, context: u64) -> Option<&mut R> {
        match self.get(context) {
            Some(ContextState::Ready(resources)) => Some(resources),
            Some(ContextState::Preparing | ContextState::Unable) | None => None,
        }
    }

    /// The resources of all contexts that can run hold kernels.
    pub fn all_ready(&mut self) -> impl Iterator<Item = &mut R> {
        self.0.iter_mut().filter_map(|(_, state)| match state {
            ContextState::Ready(resources) => Some(resources),
            ContextState::Preparing | ContextState::Unable => None,
        })
    }

    /// Requests resources for an existing context.
    pub fn request(&mut self, context: u64) {
        if self.get(context).is_none() {
            self.0.push((context, ContextState::Preparing));
        }
    }

    /// Stores the resources of a context, or that there are none. Without effect if the context has ended.
    pub fn set_prepared(&mut self, context: u64, resources: Option<R>) {
        if let Some(known) = self.get(context) {
            *known = resources.map_or(ContextState::Unable, ContextState::Ready);
        }
    }

    /// Records that a hold kernel could not be launched. Without effect if the context has ended.
    pub fn set_unable(&mut self, context: u64) {
        if let Some(known) = self.get(context) {
            *known = ContextState::Unable;
        }
    }

    /// The next context whose resources are to be made.
    pub fn next_to_prepare(&self) -> Option<u64> {
        let waiting = self.0.iter().find(|(_, state)| matches!(state, ContextState::Preparing));
        waiting.map(|(context, _)| *context)
    }

    /// Forgets a context that has ended; returns its resources.
    pub fn remove(&mut self, context: u64) -> Option<R> {
        let at = self.0.iter().position(|(known, _)| *known == context)?;
        match self.0.swap_remove(at).1 {
            ContextState::Ready(resources) => Some(resources),
            ContextState::Preparing | ContextState::Unable => None,
        }
    }
}

impl<R> Default for HoldContexts<R> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_result_of_an_ended_context_does_not_affect_the_next_one_of_its_handle() {
        let mut contexts = HoldContexts::new();
        contexts.request(7);
        contexts.set_prepared(7, Some("stream"));
        assert_eq!(contexts.remove(7), Some("stream"));
        // The launch and the resources of the ended context arrive only now.
        contexts.set_unable(7);
        contexts.set_prepared(7, None);
        assert_eq!(contexts.get(7), None);
        contexts.request(7);
        assert_eq!(contexts.next_to_prepare(), Some(7));
    }

    #[test]
    fn unable_context_is_not_retried() {
        let mut contexts = HoldContexts::new();
        contexts.request(7);
        contexts.set_prepared(7, Some("stream"));
        contexts.set_unable(7);
        contexts.request(7);
        assert_eq!(contexts.next_to_prepare(), None);
        assert_eq!(contexts.ready(7), None);
    }
}
