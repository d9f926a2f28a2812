//! How a thread reports to the event loop: it sends one kind of value and knows no other message.

use std::fmt;
use std::sync::Arc;

/// Where a thread sends its results.
pub(crate) struct Report<T>(Arc<dyn Fn(T) + Send + Sync>);

impl<T> Report<T> {
    /// Results go to `send`.
    pub(crate) fn new(send: impl Fn(T) + Send + Sync + 'static) -> Self {
        Self(Arc::new(send))
    }

    /// Sends a result.
    pub(crate) fn send(&self, result: T) {
        (self.0)(result);
    }
}

impl<T> Clone for Report<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Report<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}
