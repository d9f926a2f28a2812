//! The contexts of a process that want to hold, told apart by the driver's handles.
//!
//! The driver gives the handle of a context that has ended to the next one, so nothing may be kept of one that has ended.

/// Where a context stands; `R` is what it takes to hold in it.
#[derive(Debug, PartialEq, Eq)]
pub enum ContextState<R> {
    /// It is being made ready, or about to be.
    Preparing,
    /// It can hold.
    Ready(R),
    /// It cannot.
    Unable,
}

/// All contexts that ever wanted to hold and still exist.
#[derive(Debug)]
pub struct HoldContexts<R>(Vec<(u64, ContextState<R>)>);

impl<R> HoldContexts<R> {
    /// None.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Where a context stands; `None` if it never wanted to hold, or has ended.
    pub fn get(&mut self, context: u64) -> Option<&mut ContextState<R>> {
        self.0.iter_mut().find(|(known, _)| *known == context).map(|(_, standing)| standing)
    }

    /// What it takes to hold in a context that can.
    pub fn ready(&mut self, context: u64) -> Option<&mut R> {
        match self.get(context) {
            Some(ContextState::Ready(resources)) => Some(resources),
            Some(ContextState::Preparing | ContextState::Unable) | None => None,
        }
    }

    /// What it takes to hold in each context that can.
    pub fn all_ready(&mut self) -> impl Iterator<Item = &mut R> {
        self.0.iter_mut().filter_map(|(_, standing)| match standing {
            ContextState::Ready(resources) => Some(resources),
            ContextState::Preparing | ContextState::Unable => None,
        })
    }

    /// A context, which exists, wants to hold.
    pub fn request(&mut self, context: u64) {
        if self.get(context).is_none() {
            self.0.push((context, ContextState::Preparing));
        }
    }

    /// What became of making a context ready. Changes nothing for one that has ended meanwhile.
    pub fn set_prepared(&mut self, context: u64, resources: Option<R>) {
        if let Some(known) = self.get(context) {
            *known = resources.map_or(ContextState::Unable, ContextState::Ready);
        }
    }

    /// A hold could not be launched. Changes nothing for a context that has ended meanwhile.
    pub fn set_unable(&mut self, context: u64) {
        if let Some(known) = self.get(context) {
            *known = ContextState::Unable;
        }
    }

    /// The next context that is to be made ready.
    pub fn next_to_prepare(&self) -> Option<u64> {
        let waiting = self.0.iter().find(|(_, standing)| matches!(standing, ContextState::Preparing));
        waiting.map(|(context, _)| *context)
    }

    /// Forgets a context that has ended; returns what it took to hold in it.
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
    fn a_hold_that_comes_too_late_leaves_nothing_for_the_next_context_of_the_handle() {
        let mut contexts = HoldContexts::new();
        contexts.request(7);
        contexts.set_prepared(7, Some("stream"));
        assert_eq!(contexts.remove(7), Some("stream"));
        // The hold for it, and what was made ready for it, arrive now.
        contexts.set_unable(7);
        contexts.set_prepared(7, None);
        assert_eq!(contexts.get(7), None);
        contexts.request(7);
        assert_eq!(contexts.next_to_prepare(), Some(7));
    }

    #[test]
    fn a_context_that_cannot_hold_is_not_tried_again() {
        let mut contexts = HoldContexts::new();
        contexts.request(7);
        contexts.set_prepared(7, Some("stream"));
        contexts.set_unable(7);
        contexts.request(7);
        assert_eq!(contexts.next_to_prepare(), None);
        assert_eq!(contexts.ready(7), None);
    }
}
