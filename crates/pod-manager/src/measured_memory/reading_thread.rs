//! The thread that reads the memory of processes: the driver may block for as long as a control request takes, or longer.

use super::MemoryReader;
use crate::report::Report;
use sluice_process_memory::ProcessMemory;
use std::io;
use std::sync::mpsc::{Sender, channel};

/// The result of a reading.
#[derive(Debug)]
pub(crate) struct ReadingResult {
    /// When it was requested, by the manager's clock, nanoseconds.
    pub(super) taken_ns: u64,
    /// All processes on the GPU, or why there is no reading.
    pub(super) processes: Result<Vec<ProcessMemory>, String>,
    /// The energy that the GPU has drawn in all, millijoules.
    pub(crate) energy_mj: Option<u64>,
}

/// The sending end of the thread's requests. The thread ends when it is dropped.
#[derive(Debug)]
pub(super) struct ReadingThread(Sender<u64>);

impl ReadingThread {
    /// Starts the thread, which reports every result.
    /// Errors: the thread cannot be started.
    pub(super) fn start(
        mut reader: Box<dyn MemoryReader>,
        report: Report<ReadingResult>,
    ) -> io::Result<Self> {
        let (sender, requests) = channel::<u64>();
        let read = move || {
            reader.prepare();
            for taken_ns in requests {
                let (processes, energy_mj) = (reader.read(), reader.energy_mj());
                report.send(ReadingResult { taken_ns, processes, energy_mj });
            }
        };
        std::thread::Builder::new().name("sluice-memory".into()).spawn(read)?;
        Ok(Self(sender))
    }

    /// Requests a reading. The caller requests the next one after the result of this one.
    pub(super) fn request(&self, now: u64) {
        // The thread ends only after this sender.
        let _ = self.0.send(now);
    }
}
