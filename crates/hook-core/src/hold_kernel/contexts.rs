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
    pub const fn none() -> Self {
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

    /// Stores the resources of a context, or that it cannot run hold kernels. Without effect if the context has ended.
    pub fn set_prepared(&mut self, context: u64, resources: Option<R>) {
        if let Some(known) = self.get(context) {
            *known = resources.map_or(ContextState::Unable, ContextState::Ready);
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

#[cfg(test)]
mod tests;
