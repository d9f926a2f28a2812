//! The streams that the program is capturing into graphs.
//!
//! While a capture is active anywhere in the process, a call on the legacy stream could invalidate it, so the tracker must know of it.
//! The count follows the begin and end calls. Whether an event drew another stream into a capture is queried from the driver.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::lock;

/// Streams between their begin-capture and end-capture calls.
#[derive(Debug, Default)]
pub struct Captures {
    count: AtomicUsize,
    /// Each stream with its context.
    streams: Mutex<Vec<(u64, u64)>>,
}

impl Captures {
    /// No capture.
    pub const fn new() -> Self {
        Self { count: AtomicUsize::new(0), streams: Mutex::new(Vec::new()) }
    }

    /// Begins a capture on the stream of a context. Called before the driver, so that no call of the tracker falls in between. Returns
    /// whether no other capture is active.
    pub fn begin(&self, stream: u64, context: u64) -> bool {
        self.change(|streams| {
            streams.push((stream, context));
            streams.len() == 1
        })
    }

    /// Ends the capture on the stream: it is over, never began, or the stream was destroyed.
    pub fn end(&self, stream: u64) {
        self.change(|streams| {
            if let Some(at) = streams.iter().position(|(captured, _)| *captured == stream) {
                streams.swap_remove(at);
            }
        });
    }

    /// Ends all captures of a context that has ended.
    pub fn end_context(&self, context: u64) {
        self.change(|streams| streams.retain(|(_, of)| *of != context));
    }

    /// Whether any stream is being captured.
    pub fn any(&self) -> bool {
        self.count.load(SeqCst) != 0
    }

    fn change<R>(&self, edit: impl FnOnce(&mut Vec<(u64, u64)>) -> R) -> R {
        let mut streams = lock(&self.streams);
        let result = edit(&mut streams);
        self.count.store(streams.len(), SeqCst);
        result
    }
}

#[cfg(test)]
mod tests;
