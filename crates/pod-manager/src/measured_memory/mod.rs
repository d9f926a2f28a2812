//! The memory that the driver reports for the clients' processes, compared with their charges.
//!
//! The difference is the client's overhead (`sluice_core::memory`). With a resource file a thread of this manager reads NVML
//! ([`MemoryReader`]). On a node the agent reads NVML for all managers and sends the readings over the control API.

mod nvml;
mod reading;
mod reading_thread;

pub use nvml::NvmlReader;
pub(crate) use reading::MemoryReading;
use reading::Sum;
pub(crate) use reading_thread::ReadingResult;
use reading_thread::ReadingThread;
pub use sluice_process_memory::ProcessMemory;

use crate::clients::Processes;
use crate::message::Remote;
use crate::metrics::ReadingOutcome;
use crate::shared::Shared;
use sluice_core::ClientId;
use sluice_proto::control::{ExceededLimit, ReportMemoryResponse};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use tracing::{info, warn};

/// Time between two readings.
const READ_INTERVAL_NS: u64 = 400_000_000;

/// Reads the memory that each process has on the GPU. A thread of its own calls it, so it may block.
pub trait MemoryReader: Send {
    /// All processes on the GPU.
    /// Errors: why there is no reading, in words.
    fn read(&mut self) -> Result<Vec<ProcessMemory>, String>;
}

/// When the memory is read, and which clients' limits it exceeds.
#[derive(Default)]
pub(crate) struct MeasuredMemory {
    /// The reading thread; `None`: the node agent reports readings.
    thread: Option<ReadingThread>,
    /// A reading has not ended yet.
    is_reading: bool,
    next_reading: u64,
    /// Clients whose overhead reaches their limit, as far as that was logged.
    exceeded: BTreeSet<ClientId>,
    /// The last failure, as logged.
    failure: Option<String>,
}

impl MeasuredMemory {
    pub(crate) fn new(reader: Option<Box<dyn MemoryReader>>, remote: Remote) -> io::Result<Self> {
        let thread = reader.map(|reader| ReadingThread::start(reader, remote)).transpose()?;
        Ok(Self { thread, ..Self::default() })
    }

    /// When the next reading is due. Without processes no client has memory that a reading could show.
    pub(crate) fn next_deadline(&self, processes: &Processes) -> Option<u64> {
        let may_read = self.thread.is_some() && !self.is_reading && !processes.is_empty();
        may_read.then_some(self.next_reading)
    }

    /// Begins a reading if one is due.
    pub(crate) fn read_if_due(&mut self, shared: &Shared) {
        let now = shared.io.now();
        let is_due = self.next_deadline(&shared.processes).is_some_and(|next| next <= now);
        if let Some(thread) = self.thread.as_ref().filter(|_| is_due) {
            thread.request(now);
            self.is_reading = true;
            self.next_reading = now.saturating_add(READ_INTERVAL_NS);
        }
    }

    /// Applies the result of a reading by this manager.
    pub(crate) fn reading_ended(&mut self, result: ReadingResult, shared: &mut Shared) {
        self.is_reading = false;
        match result.processes {
            Ok(processes) => {
                self.failure = None;
                let reading = MemoryReading::by_pid(result.taken_ns, processes);
                self.apply(&reading, shared);
            }
            Err(why) => {
                shared.io.metrics.memory_readings.count(ReadingOutcome::Failed);
                if self.failure.as_ref() != Some(&why) {
                    info!("memory of processes cannot be read, limits cover charges only: {why}");
                    self.failure = Some(why);
                }
            }
        }
    }

    /// Applies a reading of the node agent's.
    pub(crate) fn reported(&mut self, reading: &MemoryReading, shared: &mut Shared) -> ReportMemoryResponse {
        ReportMemoryResponse { exceeded: self.apply(reading, shared) }
    }

    /// Compares all clients' charges with a reading. Returns the clients whose overhead reaches their limit.
    fn apply(&mut self, reading: &MemoryReading, shared: &mut Shared) -> Vec<ExceededLimit> {
        if reading.is_failed {
            shared.io.metrics.memory_readings.count(ReadingOutcome::Failed);
            return Vec::new();
        }
        let now = shared.io.now();
        let mut sums = reading.sums(&shared.clients, &shared.processes, now);
        let complete = sums.values().all(|sum| sum.is_complete);
        let outcome = if complete { ReadingOutcome::Complete } else { ReadingOutcome::Unavailable };
        shared.io.metrics.memory_readings.count(outcome);
        let clients: Vec<ClientId> = shared.clients.iter().map(|(id, _)| id).collect();
        self.exceeded.retain(|client| shared.clients.get(*client).is_some());
        let none = || Sum::empty(reading.taken_ns(now));
        let measured = clients.into_iter().map(|id| (id, sums.remove(&id).unwrap_or_else(none)));
        let measured: BTreeMap<ClientId, Sum> = measured.filter(|(_, sum)| sum.is_complete).collect();
        let exceeded = measured.iter().filter_map(|(id, sum)| {
            shared.clients.memory.measure(*id, &sum.reading, now);
            self.check_limit(*id, sum, shared)
        });
        exceeded.collect()
    }

    /// Logs once that a client's overhead alone reaches its limit, so that no allocation succeeds.
    fn check_limit(&mut self, id: ClientId, sum: &Sum, shared: &Shared) -> Option<ExceededLimit> {
        let account = shared.clients.memory.client(id)?;
        let client = shared.clients.get(id).filter(|client| !client.removed)?;
        if account.overhead < account.limit {
            self.exceeded.remove(&id);
            return None;
        }
        let (pid, process_bytes) = sum.largest;
        let (limit, overhead) = (account.limit, account.overhead);
        if self.exceeded.insert(id) {
            warn!(
                client = client.name,
                limit,
                overhead,
                pid,
                process_bytes,
                "memory limit is reached by contexts, modules and memory without charge alone: every allocation is refused"
            );
        }
        let pod_uid = client.definition.key.pod_uid().unwrap_or_default().to_owned();
        Some(ExceededLimit { pod_uid, limit_bytes: limit, overhead_bytes: overhead, pid, process_bytes })
    }
}
