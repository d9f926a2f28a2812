//! Actions of another thread in the middle of a driver call.

use super::FakeGpu;

/// The driver calls that can be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallPoint {
    /// A query of an event.
    Query,
    /// A query whether a stream is captured.
    Capturing,
    /// A stream's wait for an event.
    Wait,
    /// The destruction of a stream: the stream is gone, the call has not returned.
    Destroy,
    /// Disabling a channel group.
    DisableGroup,
    /// Enabling a channel group.
    EnableGroup,
}

/// An action that runs once.
#[derive(Default)]
pub(crate) struct Interruption(pub(crate) Option<Box<dyn FnOnce() + Send>>);

impl std::fmt::Debug for Interruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Interruption").field(&self.0.is_some()).finish()
    }
}

impl FakeGpu {
    /// Runs `what` during the next such call.
    pub(crate) fn run_during(&self, call: CallPoint, what: impl FnOnce() + Send + 'static) {
        self.state().interruptions.insert(call, Interruption(Some(Box::new(what))));
    }

    /// Whether the action for such a call has started.
    pub(crate) fn was_interrupted(&self, call: CallPoint) -> bool {
        !self.state().interruptions.contains_key(&call)
    }

    /// Runs the action for this call. Returns `true` if there was one.
    pub(super) fn interrupt(&self, call: CallPoint) -> bool {
        let what = self.state().interruptions.remove(&call).and_then(|what| what.0);
        let any = what.is_some();
        what.into_iter().for_each(|what| what());
        any
    }
}
