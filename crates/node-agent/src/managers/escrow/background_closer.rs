//! Closes descriptors on a thread of its own. The last close of a control descriptor frees GPU memory and may block in
//! the driver for long; the thread that reads deposits must not wait for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

/// The sender to the closing thread. The thread ends after this is dropped and everything is closed; it is not joined.
pub(super) struct BackgroundCloser {
    things: Sender<Box<dyn Send>>,
    pending: Arc<AtomicUsize>,
}

impl BackgroundCloser {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(super) fn start() -> io::Result<Self> {
        let (things, to_close) = channel::<Box<dyn Send>>();
        let pending = Arc::new(AtomicUsize::new(0));
        let closed = Arc::clone(&pending);
        std::thread::Builder::new().name("sluice-close".into()).spawn(move || {
            for thing in to_close {
                drop(thing);
                closed.fetch_sub(1, Ordering::Relaxed);
            }
        })?;
        Ok(Self { things, pending })
    }

    /// Drops `thing` on the closing thread.
    pub(super) fn close(&self, thing: impl Send + 'static) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        // The thread lives as long as this sender, so sending cannot fail.
        let _ = self.things.send(Box::new(thing));
    }

    /// Number of values that were handed over and are not closed yet.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }
}
