//! GPUs that say what a test wants them to say.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::health::Sickness;
use super::source::{Condition, Gpu, Gpus, NoDriver, Report, Sighting, Usage};

/// A driver in a test's hand. Xids go to whoever listens at the time or next.
pub struct FakeGpus {
    answer: Mutex<Result<Vec<Sighting>, NoDriver>>,
    reports: Sender<Report>,
    to_hear: Mutex<Receiver<Report>>,
    usage: Mutex<Result<Usage, NoDriver>>,
}

/// Version of the driver that is not there.
pub const DRIVER: &str = "700.1";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GPU of 80 GiB with a UUID that follows from its index: `GPU-00000000-0000-0000-0000-00000000000<index>`.
pub fn gpu(index: u32) -> Gpu {
    Gpu {
        uuid: format!("GPU-00000000-0000-0000-0000-{index:012x}"),
        index,
        model: "Fake GPU".into(),
        memory_bytes: 80 << 30,
        numa: None,
        pci: format!("0000:{:02x}:00.0", index + 1),
        nvlink: Vec::new(),
    }
}

impl FakeGpus {
    /// So many healthy GPUs, [`gpu`] by index.
    pub fn healthy(count: u32) -> Self {
        Self::answering(Ok((0..count).map(|index| Sighting::Known(gpu(index), Condition::Good)).collect()))
    }

    /// A driver that answers this.
    pub fn answering(answer: Result<Vec<Sighting>, NoDriver>) -> Self {
        let (reports, to_hear) = channel();
        let usage = Mutex::new(Ok(Usage { driver: DRIVER.into(), processes: 0 }));
        Self { answer: Mutex::new(answer), reports, to_hear: Mutex::new(to_hear), usage }
    }

    /// What it answers from now on.
    pub fn answer(&self, answer: Result<Vec<Sighting>, NoDriver>) {
        *lock(&self.answer) = answer;
    }

    /// From now on every GPU is used like this.
    pub fn used(&self, usage: Result<Usage, NoDriver>) {
        *lock(&self.usage) = usage;
    }

    /// From now on this GPU is found like this.
    pub fn set(&self, index: u32, condition: Condition) {
        if let Ok(sightings) = &mut *lock(&self.answer) {
            for sighting in sightings {
                if let Sighting::Known(gpu, found) = sighting
                    && gpu.index == index
                {
                    *found = condition.clone();
                }
            }
        }
    }

    /// From now on this GPU has fallen off the bus; the Xid that tells of it is reported.
    pub fn lose(&self, index: u32) {
        self.set(index, Condition::Bad(Sickness::Lost));
        self.report(index, 79);
    }

    /// Reports an Xid.
    pub fn report(&self, index: u32, code: u64) {
        // The receiver lives as long as this.
        let _ = self.reports.send(Report::Xid { uuid: Some(gpu(index).uuid), code });
    }
}

impl Gpus for FakeGpus {
    fn inventory(&self) -> Result<Vec<Sighting>, NoDriver> {
        lock(&self.answer).clone()
    }

    fn listen(&self, hear: &mut dyn FnMut(Report) -> ControlFlow<()>) -> Result<(), NoDriver> {
        let to_hear = lock(&self.to_hear);
        if hear(Report::Listening).is_break() {
            return Ok(());
        }
        loop {
            let report = match to_hear.recv_timeout(Duration::from_millis(100)) {
                Ok(report) => report,
                Err(RecvTimeoutError::Timeout) => Report::Quiet,
                Err(RecvTimeoutError::Disconnected) => return Err(NoDriver("nobody reports".into())),
            };
            if hear(report).is_break() {
                return Ok(());
            }
        }
    }

    fn usage(&self, _: &str) -> Result<Usage, NoDriver> {
        lock(&self.usage).clone()
    }
}
