//! Closes duplicates on a thread of its own: the last close of a way to the driver frees GPU memory and takes as long as
//! the driver likes, and whoever reads deposits has to go on reading.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

/// The sending end; the thread ends when it is dropped and everything is closed. Nobody waits for that.
pub(super) struct Closer {
    things: Sender<Box<dyn Send>>,
    waiting: Arc<AtomicUsize>,
}

impl Closer {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub(super) fn start() -> io::Result<Self> {
        let (things, to_close) = channel::<Box<dyn Send>>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let closed = Arc::clone(&waiting);
        std::thread::Builder::new().name("sluice-close".into()).spawn(move || {
            for thing in to_close {
                drop(thing);
                closed.fetch_sub(1, Ordering::Relaxed);
            }
        })?;
        Ok(Self { things, waiting })
    }

    /// Drops it there.
    pub(super) fn close(&self, thing: impl Send + 'static) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The thread ends no earlier than this.
        let _ = self.things.send(Box::new(thing));
    }

    /// How many things are still open although nobody has them any more.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}
