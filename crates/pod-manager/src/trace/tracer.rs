//! What the event loop records. Without a reader there is no ring, and each place that records compares one pointer.

use super::recording::{Recording, TraceBatch};

/// Readers at once. The event loop copies each event for each of them.
const MAX_READERS: usize = 4;

/// Records events while there are readers.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    recording: Option<Box<Recording>>,
    readers: usize,
}

impl Tracer {
    /// The recording, while there is a reader.
    pub(crate) fn recording(&mut self) -> Option<&mut Recording> {
        self.recording.as_deref_mut()
    }

    /// Whether there is a reader.
    pub(crate) fn is_on(&self) -> bool {
        self.recording.is_some()
    }

    /// Adds a reader. `false`: there are as many as there may be.
    pub(crate) fn join(&mut self) -> bool {
        if self.readers == MAX_READERS {
            return false;
        }
        self.readers += 1;
        self.recording.get_or_insert_default();
        true
    }

    /// A reader has left. With the last one the ring goes.
    pub(crate) fn leave(&mut self) {
        self.readers = self.readers.saturating_sub(1);
        if self.readers == 0 {
            self.recording = None;
        }
    }

    /// What a reader that has read up to number `from` receives next; `None` if there is no recording.
    pub(crate) fn read(&self, from: u64, now: u64) -> Option<TraceBatch> {
        self.recording.as_ref().map(|recording| recording.read(from, now))
    }

    /// What a new reader receives first; `None` if there is no recording.
    pub(crate) fn begin(&self, now: u64) -> Option<TraceBatch> {
        self.recording.as_ref().map(|recording| recording.begin(now))
    }

    /// When the pages of latency-critical processes are read next, if there is a reader.
    pub(crate) fn next_sample(&self) -> Option<u64> {
        self.recording.as_ref().map(|recording| recording.next_sample)
    }
}

#[cfg(test)]
mod tests;
