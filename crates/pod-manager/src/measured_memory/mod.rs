//! The memory that the driver reports for the clients' processes, compared with their charges.
//!
//! The difference is the client's overhead (`sluice_core::memory`). With a resource file a thread of this manager reads NVML
//! ([`MemoryReader`]). On a node the agent reads NVML for all managers and sends the readings over the control API.

mod first_reservations;
mod nvml;
mod reading;
mod reading_thread;

use first_reservations::FirstReservations;
pub(crate) use first_reservations::{Delay, Reservation};
pub use nvml::NvmlReader;
pub(crate) use reading::MemoryReading;
use reading::Sum;
pub(crate) use reading_thread::ReadingResult;
use reading_thread::ReadingThread;
pub use sluice_process_memory::ProcessMemory;

use crate::clients::Clients;
use crate::io::Io;
use crate::metrics::ReadingOutcome;
use crate::processes::Processes;
use crate::report::Report;
use sluice_core::ClientId;
use sluice_core::processes::{Consequence, Violation, ViolationKind};
use sluice_proto::control::ExceededLimit;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use tokio::sync::oneshot;
use tracing::{info, warn};

/// Time between two readings.
const READ_INTERVAL_NS: u64 = 400_000_000;
/// The same if a first reservation waits. A tenant may start any number of processes, and a reading takes locks of the driver.
const READ_SPACING_NS: u64 = 20_000_000;
/// Memory above a limit that is no violation: a client that has filled its limit may still load modules, 8 MiB for each of PyTorch's
/// libraries (H200, docs/benchmarks/history/2026-11.md).
const LATE_MODULES: u64 = 64 << 20;
/// The same for each process if the limit is below the client's overhead: PyTorch's context and modules took 824 MiB (H200). Such a limit
/// is reported as too small.
const CONTEXT_AND_MODULES: u64 = 1 << 30;

/// Reads the memory that each process has on the GPU. A thread of its own calls it, so it may block.
pub trait MemoryReader: Send {
    /// Does what takes long and needs to be done once, before the first reading.
    fn prepare(&mut self) {}

    /// All processes on the GPU.
    /// Errors: why there is no reading, in words.
    fn read(&mut self) -> Result<Vec<ProcessMemory>, String>;

    /// The energy that the GPU has drawn since its driver was loaded, millijoules; `None`: it is not known.
    fn energy_mj(&mut self) -> Option<u64> {
        None
    }
}

/// When the memory is read, and which clients' limits it exceeds.
#[derive(Default)]
pub(crate) struct MeasuredMemory {
    /// The reading thread; `None`: the node agent reports readings.
    thread: Option<ReadingThread>,
    /// A reading has not ended yet.
    is_reading: bool,
    next_reading: u64,
    first_reservations: FirstReservations,
    /// Clients with more memory than their limit, as far as that was counted as a violation.
    above_limit: BTreeSet<ClientId>,
    /// Clients whose overhead reaches their limit, as far as that was logged.
    exceeded: BTreeSet<ClientId>,
    /// The last failure, as logged.
    failure: Option<String>,
}

/// What the comparison with a reading has found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) violations: Vec<Violation>,
    /// The clients whose overhead reaches their limit.
    pub(crate) exceeded: Vec<ExceededLimit>,
}

impl MeasuredMemory {
    pub(crate) fn new(
        reader: Option<Box<dyn MemoryReader>>,
        report: Report<ReadingResult>,
    ) -> io::Result<Self> {
        let thread = reader.map(|reader| ReadingThread::start(reader, report)).transpose()?;
        Ok(Self { thread, ..Self::default() })
    }

    /// When a reading or the end of a reservation's wait is due.
    pub(crate) fn next_deadline(&self, clients: &Clients, processes: &Processes) -> Option<u64> {
        self.next_reading(clients, processes).into_iter().chain(self.first_reservations.next_deadline()).min()
    }

    /// When the next reading is due. Without processes most readings would change nothing, and one that failed is not repeated.
    fn next_reading(&self, clients: &Clients, processes: &Processes) -> Option<u64> {
        let may_read = self.thread.is_some() && !self.is_reading;
        let is_needed = !processes.is_empty() || self.failure.is_none() && clients.memory.awaits_reading();
        let urgent = self.first_reservations.reading_due();
        let urgent =
            urgent.map(|due| due.max(self.next_reading.saturating_sub(READ_INTERVAL_NS - READ_SPACING_NS)));
        let next = urgent.into_iter().chain([self.next_reading]).min();
        next.filter(|_| may_read && is_needed)
    }

    /// Begins a reading if one is due.
    pub(crate) fn read_if_due(&mut self, clients: &Clients, processes: &Processes, now: u64) {
        let is_due = self.next_reading(clients, processes).is_some_and(|next| next <= now);
        if let Some(thread) = self.thread.as_ref().filter(|_| is_due) {
            thread.request(now);
            self.first_reservations.reading_begins(now);
            self.is_reading = true;
            self.next_reading = now.saturating_add(READ_INTERVAL_NS);
        }
    }

    /// Makes a reservation wait if it is the first one of its process, or beside such a one of its client, and readings come.
    pub(crate) fn delay(&mut self, reservation: Reservation, processes: &mut Processes, now: u64) -> Delay {
        let Some(process) = processes.get_mut(reservation.process) else { return Delay::None };
        let (client, is_first) = (process.client, !process.endpoint.has_reserved);
        let reads = match &self.thread {
            Some(_) => self.failure.is_none(),
            None => self.first_reservations.agent_reads(now),
        };
        if !reads {
            return Delay::None;
        }
        let delay = self.first_reservations.delay(client, reservation, is_first, now);
        process.endpoint.has_reserved |= delay == Delay::Waits;
        delay
    }

    /// The reservations that wait no longer.
    pub(crate) fn take_due_reservations(&mut self, now: u64) -> Vec<Reservation> {
        self.first_reservations.take_due(now)
    }

    /// The agent asks for an answer as soon as a reservation waits for a reading.
    pub(crate) fn next_wanted(&mut self, question: oneshot::Sender<()>, now: u64) {
        self.first_reservations.ask(question, now);
    }

    /// Applies the result of a reading by this manager.
    pub(crate) fn reading_ended(
        &mut self,
        result: ReadingResult,
        clients: &mut Clients,
        processes: &Processes,
        io: &Io,
    ) -> Found {
        self.is_reading = false;
        match result.processes {
            Ok(measured) => {
                self.failure = None;
                let reading = MemoryReading::by_pid(result.taken_ns, measured);
                self.apply(&reading, clients, processes, io)
            }
            Err(why) => {
                io.metrics.memory_readings.count(ReadingOutcome::Failed);
                self.first_reservations.give_up();
                if self.failure.as_ref() != Some(&why) {
                    info!("memory of processes cannot be read, limits cover charges only: {why}");
                    self.failure = Some(why);
                }
                Found::default()
            }
        }
    }

    /// Compares all clients' charges with a reading.
    pub(crate) fn apply(
        &mut self,
        reading: &MemoryReading,
        clients: &mut Clients,
        processes: &Processes,
        io: &Io,
    ) -> Found {
        if reading.is_failed {
            io.metrics.memory_readings.count(ReadingOutcome::Failed);
            self.first_reservations.give_up();
            return Found::default();
        }
        let now = io.now();
        let mut sums = reading.sums(clients, processes, now);
        let complete = sums.values().all(|sum| sum.is_complete);
        let outcome = if complete { ReadingOutcome::Complete } else { ReadingOutcome::Unavailable };
        io.metrics.memory_readings.count(outcome);
        let ids: Vec<ClientId> = clients.iter().map(|(id, _)| id).collect();
        self.exceeded.retain(|client| clients.get(*client).is_some());
        self.above_limit.retain(|client| clients.get(*client).is_some());
        self.first_reservations.reading_applied(reading.taken_ns(now));
        let none = || Sum::empty(reading.taken_ns(now));
        let measured = ids.into_iter().map(|id| (id, sums.remove(&id).unwrap_or_else(none)));
        let measured: BTreeMap<ClientId, Sum> = measured.filter(|(_, sum)| sum.is_complete).collect();
        let mut found = Found::default();
        for (id, sum) in &measured {
            clients.memory.measure(*id, &sum.reading, now);
            found.violations.extend(self.check_excess(*id, sum, clients));
            found.exceeded.extend(self.check_limit(*id, sum, clients));
        }
        found
    }

    /// A violation when a client begins to have more memory than its limit.
    fn check_excess(&mut self, id: ClientId, sum: &Sum, clients: &Clients) -> Option<Violation> {
        // The limit of a removed client is 0, and its processes may still run.
        clients.get(id).filter(|client| !client.removed)?;
        let excess = clients.memory.excess(id);
        let has_room = clients.memory.client(id).is_some_and(|of| of.overhead < of.limit);
        let tolerated = if has_room { LATE_MODULES } else { CONTEXT_AND_MODULES * sum.processes };
        if excess <= tolerated {
            self.above_limit.remove(&id);
            return None;
        }
        let what = format!("the GPU has {} MiB more of the client's memory than its limit", excess >> 20);
        let (pid, kind, consequence) = (Some(sum.largest.0), ViolationKind::MemoryLimit, Consequence::Report);
        self.above_limit.insert(id).then_some(Violation { client: id, pid, kind, what, consequence })
    }

    /// Logs once that a client's overhead alone reaches its limit, so that no allocation succeeds.
    fn check_limit(&mut self, id: ClientId, sum: &Sum, clients: &Clients) -> Option<ExceededLimit> {
        let account = clients.memory.client(id)?;
        let client = clients.get(id).filter(|client| !client.removed)?;
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
