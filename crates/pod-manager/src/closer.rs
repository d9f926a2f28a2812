//! Closes what peers have had a hand in, on a thread of its own.
//!
//! The last close of a descriptor can take as long as whoever made it likes (a TCP socket that lingers, a file of a slow file
//! system), and a unix socket closes the descriptors that still lie in it. Nobody can make the data plane wait for that.

use std::io;
use std::sync::mpsc::{SendError, Sender, channel};

/// The sending end; the thread ends when it is dropped and everything is closed. Nobody waits for that.
pub(crate) struct Closer(Sender<Box<dyn Send>>);

impl Closer {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, things) = channel();
        std::thread::Builder::new()
            .name("sluice-close".into())
            .spawn(move || things.iter().for_each(drop))?;
        Ok(Self(sender))
    }

    /// Drops it there.
    pub(crate) fn close(&self, thing: impl Send + 'static) {
        if let Err(SendError(thing)) = self.0.send(Box::new(thing)) {
            // The thread has gone, which only a panic can have done: better a descriptor too many than a wait.
            std::mem::forget(thing);
        }
    }
}
