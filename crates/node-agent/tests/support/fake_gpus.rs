//! A driver whose answers a test sets: for the unit tests and for the program `it`.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_node_agent::gpus::driver::{
    Condition, DriverEvent, DriverUnavailable, Gpu, GpuDriver, ProcessMemory, ScannedGpu, Usage,
};
use sluice_node_agent::gpus::health::Fault;

/// A driver that a test controls. An Xid reaches the current listener, or else the next one.
pub struct FakeDriver {
    answer: Mutex<Result<Vec<ScannedGpu>, DriverUnavailable>>,
    reports: Sender<DriverEvent>,
    pending: Mutex<Receiver<DriverEvent>>,
    usage: Mutex<Result<Usage, DriverUnavailable>>,
    memory: Mutex<Result<Vec<ProcessMemory>, DriverUnavailable>>,
}

/// Version of the fake driver.
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
        memory_total_bytes: None,
        host_memory_bytes: 0,
        numa: None,
        pci: format!("0000:{:02x}:00.0", index + 1),
        nvlink: Vec::new(),
        mig: None,
        healthy: true,
        unhealthy_reason: None,
    }
}

impl FakeDriver {
    /// This many healthy GPUs: [`gpu`] of each index.
    pub fn healthy(count: u32) -> Self {
        Self::answering(Ok((0..count).map(|index| ScannedGpu::Known(gpu(index), Condition::Good)).collect()))
    }

    /// A driver with this answer.
    pub fn answering(answer: Result<Vec<ScannedGpu>, DriverUnavailable>) -> Self {
        let (reports, pending) = channel();
        let usage = Mutex::new(Ok(Usage { driver: DRIVER.into(), processes: 0 }));
        let memory = Mutex::new(Ok(Vec::new()));
        Self { answer: Mutex::new(answer), reports, pending: Mutex::new(pending), usage, memory }
    }

    /// Sets the answer of later scans.
    pub fn set_answer(&self, answer: Result<Vec<ScannedGpu>, DriverUnavailable>) {
        *lock(&self.answer) = answer;
    }

    /// Sets the use of every GPU.
    pub fn set_usage(&self, usage: Result<Usage, DriverUnavailable>) {
        *lock(&self.usage) = usage;
    }

    /// Sets the memory of the processes on every GPU.
    pub fn set_memory(&self, memory: Result<Vec<ProcessMemory>, DriverUnavailable>) {
        *lock(&self.memory) = memory;
    }

    /// Sets the condition in which later scans find this GPU.
    pub fn set_condition(&self, index: u32, condition: Condition) {
        if let Ok(scanned) = &mut *lock(&self.answer) {
            for found_gpu in scanned {
                if let ScannedGpu::Known(gpu, found) = found_gpu
                    && gpu.index == index
                {
                    *found = condition.clone();
                }
            }
        }
    }

    /// Lets this GPU fall off the bus, and reports the Xid for it.
    pub fn lose(&self, index: u32) {
        self.set_condition(index, Condition::Bad(Fault::Lost));
        self.report_xid(index, 79);
    }

    /// Reports an Xid.
    pub fn report_xid(&self, index: u32, code: u64) {
        // The receiver lives as long as this sender.
        let _ = self.reports.send(DriverEvent::Xid { uuid: Some(gpu(index).uuid), code });
    }
}

impl GpuDriver for FakeDriver {
    fn inventory(&self) -> Result<Vec<ScannedGpu>, DriverUnavailable> {
        lock(&self.answer).clone()
    }

    fn listen(
        &self,
        on_event: &mut dyn FnMut(DriverEvent) -> ControlFlow<()>,
    ) -> Result<(), DriverUnavailable> {
        let pending = lock(&self.pending);
        if on_event(DriverEvent::Listening).is_break() {
            return Ok(());
        }
        loop {
            let report = match pending.recv_timeout(Duration::from_millis(100)) {
                Ok(report) => report,
                Err(RecvTimeoutError::Timeout) => DriverEvent::Quiet,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(DriverUnavailable("the test has dropped the sender".into()));
                }
            };
            if on_event(report).is_break() {
                return Ok(());
            }
        }
    }

    fn process_memory(&self, _: &str) -> Result<Vec<ProcessMemory>, DriverUnavailable> {
        lock(&self.memory).clone()
    }

    fn usage(&self, _: &str) -> Result<Usage, DriverUnavailable> {
        lock(&self.usage).clone()
    }
}
