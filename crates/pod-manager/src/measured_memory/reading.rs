//! A reading: the memory of processes, and to which client each process belongs.

use crate::clients::Clients;
use crate::processes::Processes;
use sluice_core::memory::{ProcessReading, Reading};
use sluice_core::{ClientId, ProcessId};
use sluice_process_memory::ProcessMemory;
use sluice_proto::control::ReportMemoryRequest;
use std::collections::{BTreeMap, HashMap};

/// When a reading was begun.
#[derive(Clone, Copy, Debug)]
enum Begin {
    /// At this time of the manager's clock, nanoseconds.
    At(u64),
    /// This long before it arrived, nanoseconds.
    Before(u64),
}

/// The memory of all processes on the GPU at one moment.
#[derive(Clone, Debug)]
pub(crate) struct MemoryReading {
    begin: Begin,
    processes: Vec<Measured>,
    /// The driver reported nothing.
    pub(super) is_failed: bool,
    /// The energy that the GPU has drawn in all, millijoules, as the node agent reports it.
    pub(crate) energy_mj: Option<u64>,
}

/// The memory of one process.
#[derive(Clone, Debug)]
struct Measured {
    memory: ProcessMemory,
    /// The pod in whose cgroup the process is; `None`: only attached processes are recognised, by their pid.
    pod: Option<String>,
}

/// The memory of one client's processes.
#[derive(Debug)]
pub(super) struct Sum {
    pub(super) reading: Reading,
    /// Whether the driver has reported the memory of each process.
    pub(super) is_complete: bool,
    /// Number of processes.
    pub(super) processes: u64,
    /// The process with the most memory: its pid and its bytes.
    pub(super) largest: (i32, u64),
}

impl Sum {
    /// The client has no process on the GPU.
    pub(super) fn empty(taken_ns: u64) -> Self {
        let reading = Reading { taken_ns, ..Reading::default() };
        Self { reading, is_complete: true, processes: 0, largest: (0, 0) }
    }

    fn add(&mut self, memory: ProcessMemory, process: Option<AttachedProcess>) {
        self.processes += 1;
        let Some(bytes) = memory.bytes else {
            self.is_complete = false;
            return;
        };
        match process {
            Some(AttachedProcess { process, is_only, .. }) => {
                self.reading.processes.push(ProcessReading { process, bytes, is_only_account: is_only });
            }
            None => self.reading.unknown = self.reading.unknown.saturating_add(bytes),
        }
        if bytes > self.largest.1 {
            self.largest = (memory.pid, bytes);
        }
    }
}

impl MemoryReading {
    /// A reading by this manager.
    pub(super) fn by_pid(taken_ns: u64, processes: Vec<ProcessMemory>) -> Self {
        let processes = processes.into_iter().map(|memory| Measured { memory, pod: None });
        Self { begin: Begin::At(taken_ns), processes: processes.collect(), is_failed: false, energy_mj: None }
    }

    /// When it was begun, by the manager's clock. `now`: when it has arrived.
    pub(super) fn taken_ns(&self, now: u64) -> u64 {
        match self.begin {
            Begin::At(at) => at,
            Begin::Before(age) => now.saturating_sub(age),
        }
    }

    /// Adds up the memory of each client. A process of a pod that has not attached counts in full.
    pub(super) fn sums(&self, clients: &Clients, processes: &Processes, now: u64) -> BTreeMap<ClientId, Sum> {
        let known = by_pid(processes);
        let mut sums = BTreeMap::new();
        for Measured { memory, pod } in &self.processes {
            let attached = known.get(&memory.pid).copied();
            let client = match pod {
                Some(uid) => clients.find_by_pod(uid),
                None => attached.map(|attached| attached.client),
            };
            let Some(client) = client else { continue };
            // The number may belong to a process of another pod by now.
            let process = attached.filter(|attached| attached.client == client);
            sums.entry(client).or_insert_with(|| Sum::empty(self.taken_ns(now))).add(*memory, process);
        }
        sums
    }
}

/// An attached process with this pid.
#[derive(Clone, Copy, Debug)]
struct AttachedProcess {
    process: ProcessId,
    client: ClientId,
    /// It is identified by the kernel's identity of the process.
    has_key: bool,
    /// No other entry has this pid.
    is_only: bool,
}

/// The processes by their pids. A process may have an entry for each connection of the old protocol, and such a connection may name another
/// client. So the entry with the kernel's identity of the process counts, and otherwise the first one.
fn by_pid(processes: &Processes) -> HashMap<i32, AttachedProcess> {
    let mut known: HashMap<i32, AttachedProcess> = HashMap::new();
    for (id, process) in processes.iter() {
        let Some(pid) = process.pid.filter(|pid| *pid > 0) else { continue };
        let has_key = process.key.is_some();
        let this = AttachedProcess { process: id, client: process.client, has_key, is_only: true };
        known
            .entry(pid)
            .and_modify(|first| {
                if has_key && !first.has_key {
                    *first = this;
                }
                first.is_only = false;
            })
            .or_insert(this);
    }
    known
}

impl From<ReportMemoryRequest> for MemoryReading {
    fn from(request: ReportMemoryRequest) -> Self {
        let measured = |process: sluice_proto::control::ProcessMemory| Measured {
            memory: ProcessMemory { pid: process.pid, bytes: process.bytes },
            pod: Some(process.pod_uid),
        };
        let processes = request.processes.into_iter().map(measured).collect();
        let (begin, energy_mj) = (Begin::Before(request.age_ns), request.energy_mj);
        Self { begin, processes, is_failed: request.failed, energy_mj }
    }
}
