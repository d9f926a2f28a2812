//! The closing thread: it closes what peers have sent, or hold the other end of.

use std::sync::mpsc::{Sender, channel};

/// The closing thread's sending end. The last close of a descriptor can take as long as its creator likes (a TCP socket that lingers, a
/// file of a slow file system), and a unix socket closes the descriptors that still lie in it. No peer can make the event loop wait for that.
#[derive(Clone, Debug)]
pub(crate) struct Closer(Sender<Box<dyn Send>>);

impl Closer {
    /// Starts the thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (sender, things) = channel();
        std::thread::Builder::new()
            .name("sluice-close".into())
            .spawn(move || things.iter().for_each(drop))?;
        Ok(Self(sender))
    }

    /// Drops `thing` on the thread.
    pub(crate) fn close(&self, thing: impl Send + 'static) {
        // The thread ends no earlier than this.
        let _ = self.0.send(Box::new(thing));
    }
}
