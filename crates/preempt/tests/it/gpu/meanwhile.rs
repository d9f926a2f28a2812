//! What another thread does in the middle of a call of the driver's.

use super::Gpu;

/// In the middle of which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum During {
    /// A question about an event.
    Query,
    /// A question whether a stream is captured.
    Capturing,
    /// A stream's wait for an event.
    Wait,
    /// The destruction of a stream, when it is gone and the call has not come back.
    Destroy,
    /// The taking of the GPU from a stream.
    Hold,
    /// Its giving back.
    Release,
}

/// Something to be done once.
#[derive(Default)]
pub(crate) struct Meanwhile(pub(crate) Option<Box<dyn FnOnce() + Send>>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Meanwhile").field(&self.0.is_some()).finish()
    }
}

impl Gpu {
    /// Has this done during the next such call.
    pub(crate) fn during(&self, call: During, what: impl FnOnce() + Send + 'static) {
        self.inside().meanwhile.insert(call, Meanwhile(Some(Box::new(what))));
    }

    /// Whether what was to be done during such a call has been begun.
    pub(crate) fn was_there(&self, call: During) -> bool {
        !self.inside().meanwhile.contains_key(&call)
    }

    /// The call is in its middle; whether anything was done.
    pub(super) fn come_to(&self, call: During) -> bool {
        let what = self.inside().meanwhile.remove(&call).and_then(|what| what.0);
        let any = what.is_some();
        what.into_iter().for_each(|what| what());
        any
    }
}
