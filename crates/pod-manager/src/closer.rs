//! Closes what peers have had a hand in, on a thread of its own.
//!
//! The last close of a descriptor can take as long as whoever made it likes (a TCP socket that lingers, a file of a slow file
//! system), and a unix socket closes the descriptors that still lie in it. Nobody can make the data plane wait for that.

use std::io;
use std::sync::mpsc::{Sender, channel};

/// The sending end; the thread ends when it is dropped and everything is closed. Nobody waits for that.
#[derive(Clone, Debug)]
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
        // The thread ends no earlier than this.
        let _ = self.0.send(Box::new(thing));
    }
}
