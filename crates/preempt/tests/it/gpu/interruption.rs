//! What another thread does in the middle of a call of the driver's.

use super::FakeGpu;

/// In the middle of which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallPoint {
    /// A question about an event.
    Query,
    /// A question whether a stream is captured.
    Capturing,
    /// A stream's wait for an event.
    Wait,
    /// The destruction of a stream, when it is gone and the call has not come back.
    Destroy,
    /// The taking of the GPU from a stream.
    DisableGroup,
    /// Its giving back.
    EnableGroup,
}

/// Something to be done once.
#[derive(Default)]
pub(crate) struct Interruption(pub(crate) Option<Box<dyn FnOnce() + Send>>);

impl std::fmt::Debug for Interruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Interruption").field(&self.0.is_some()).finish()
    }
}

impl FakeGpu {
    /// Has this done during the next such call.
    pub(crate) fn run_during(&self, call: CallPoint, what: impl FnOnce() + Send + 'static) {
        self.state().interruptions.insert(call, Interruption(Some(Box::new(what))));
    }

    /// Whether what was to be done during such a call has been begun.
    pub(crate) fn was_interrupted(&self, call: CallPoint) -> bool {
        !self.state().interruptions.contains_key(&call)
    }

    /// The call is in its middle; whether anything was done.
    pub(super) fn interrupt(&self, call: CallPoint) -> bool {
        let what = self.state().interruptions.remove(&call).and_then(|what| what.0);
        let any = what.is_some();
        what.into_iter().for_each(|what| what());
        any
    }
}
