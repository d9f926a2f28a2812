//! Holds requests of the fake API server while a test does something else.

use tokio::sync::watch;

/// A gate. It is open at first.
pub(super) struct Gate(watch::Sender<bool>);

impl Gate {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(true))
    }

    pub(super) fn close(&self) {
        self.0.send_replace(false);
    }

    pub(super) fn open(&self) {
        self.0.send_replace(true);
    }

    /// Returns when the gate is open.
    pub(super) async fn passed(&self) {
        self.0.subscribe().wait_for(|is_open| *is_open).await.unwrap();
    }
}
