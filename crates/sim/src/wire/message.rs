//! Requests and answers over the socket: a length of four bytes, little-endian, and JSON.

use crate::engine::Node;
use crate::fault::{ControlFault, Fault};
use crate::identity::{PciAddress, instance_uuid_text, uuid_text};
use crate::ledger::{Interval, Ledger, Window};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;

/// Version of everything between client and daemon; the two are built together.
pub(crate) const VERSION: u32 = 7;
/// The longest message, in bytes.
pub(crate) const LONGEST: usize = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The first request of a process that uses the GPU. The answer carries the shared memory and the eventfd that
    /// wakes the daemon.
    Hello { version: u32, label: String },
    /// Opens a file of the control device, which comes with the answer.
    OpenControl,
    /// Opens a context. The answer is the number of its channel group.
    OpenContext { control: Option<ControlGroup> },
    /// Closes a context with everything in it.
    CloseContext { group: u64 },
    /// Allocates device memory.
    Allocate { bytes: u64 },
    /// Frees device memory.
    Free { bytes: u64 },
    /// Takes device memory for a module of a context.
    LoadModule { bytes: u64 },
    /// Frees the device memory of a module.
    UnloadModule { bytes: u64 },
    /// Queries the free and the total memory of the GPU.
    Memory,
    /// Queries the index of a kernel's name.
    Name { name: String },
    /// Registers a graph, by its nodes in topological order. The answer is its number. `relaunches`: it begins again at its end.
    AddGraph { nodes: Vec<Node>, relaunches: bool },
    /// Removes a graph.
    DropGraph { graph: u64 },
    /// Queries the properties of the GPU.
    Gpu,
    /// Queries all counters.
    Ledger,
    /// Moves a stepped clock. Answered when everything up to the new time is computed.
    Advance { ns: u64 },
    /// Queries the use of the GPU between two times.
    Window { from_ns: u64, to_ns: u64 },
    /// Queries the intervals in which each process had the GPU between two times.
    Timeline { from_ns: u64, to_ns: u64 },
    /// Injects the fault of an Xid.
    Inject { xid: u64 },
    /// Repairs all faults.
    Heal,
    /// Sets or removes a fault of the controls of channel groups.
    ControlFault { fault: Option<ControlFault> },
    /// Requests notification of every Xid from now on.
    Listen,
    /// Locks a process at its next driver call; answered when it has no work in progress. 0 ms means no limit.
    Lock { pid: i32, timeout_ms: u32 },
    /// Unlocks a process.
    Unlock { pid: i32 },
    /// Queries whether a process is locked: 0 or 1.
    LockState { pid: i32 },
}

impl Request {
    /// Whether the request needs the driver's lock, which controls hold while they run (`docs/reference/gpu.md` §15).
    pub(crate) fn needs_driver(&self) -> bool {
        matches!(
            self,
            Self::Allocate { .. }
                | Self::Free { .. }
                | Self::LoadModule { .. }
                | Self::UnloadModule { .. }
                | Self::OpenContext { .. }
                | Self::CloseContext { .. }
        )
    }
}

/// A channel group as the process allocated it over its file of the control device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlGroup {
    /// The resource manager's client.
    pub client: u32,
    /// Handle of the group.
    pub group: u32,
}

/// Why a process was not locked or unlocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockFailure {
    /// It does not use this GPU.
    NoSuchProcess,
    /// It belongs to another user.
    NotPermitted,
    /// It is locked already, or, for an unlock, it is not locked.
    WrongState,
    /// The process's work took too long; it continues unlocked.
    NotInTime,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The request has been executed.
    Done,
    /// Not enough device memory is left.
    OutOfMemory,
    /// The compute mode allows no further process.
    Unavailable,
    /// The request is invalid or cannot be executed.
    Refused { why: String },
    /// The number that the request asks for.
    Number(u64),
    /// Free and total bytes.
    Memory { free: u64, total: u64 },
    /// The properties of the GPU.
    Gpu(GpuInfo),
    /// All counters.
    Ledger(Box<Ledger>),
    /// The use of the GPU between two times.
    Window(Window),
    /// The intervals in which each process had the GPU.
    Timeline(Vec<Interval>),
    /// The process was not locked or unlocked.
    NotLocked(LockFailure),
    /// A fault of the GPU; sent without a request, after [`Request::Listen`].
    Xid { code: u64 },
}

/// Properties of the GPU that a process may read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInfo {
    /// Name as the driver reports it; begins with "Sluice Simulated".
    pub name: String,
    /// UUID.
    pub uuid: [u8; 16],
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// PCI address.
    pub pci: PciAddress,
    /// NUMA node of the host; none if the machine has one node.
    pub numa: Option<u32>,
    /// NVLinks: the PCI address at the other end of each, a GPU's or a switch's.
    pub links: Vec<PciAddress>,
    /// Whether the GPU is in MIG mode.
    pub is_mig: bool,
    /// Of what it is an instance, if it is one: a part of a GPU in MIG mode with memory and time of its own.
    pub instance: Option<Instance>,
    /// Whether streams can wait for words in memory and write them.
    pub has_mem_ops: bool,
    /// Whether NVML reports the memory of each process.
    pub reports_memory: bool,
    /// The version that the driver reports.
    pub driver_version: String,
    /// CU_COMPUTEMODE: 0 allows several processes, 2 none, 3 one.
    pub compute_mode: i32,
    /// Whether the driver reports that processes are clients of an MPS server. Each process has its own channel
    /// groups in any case.
    pub is_mps: bool,
    /// The GPU's fault, if it has one.
    pub fault: Option<Fault>,
}

/// An instance of a GPU in MIG mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// UUID of the GPU.
    pub parent: [u8; 16],
    /// Slices of the GPU instance, of seven.
    pub slices: u32,
    /// Those of them that are this compute instance's. If they are fewer, others share its memory.
    pub compute_slices: u32,
}

impl GpuInfo {
    /// The UUID as NVML writes it.
    pub fn uuid_text(&self) -> String {
        match self.instance {
            Some(_) => instance_uuid_text(self.uuid),
            None => uuid_text(self.uuid),
        }
    }
}

fn too_long(bytes: usize) -> io::Error {
    let what = format!("message of {bytes} bytes, expected at most {LONGEST}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= LONGEST);
    let length = length.ok_or_else(|| too_long(body.len()))?;
    Ok([length.to_le_bytes().as_slice(), &body].concat())
}

/// Removes one message from the front of a buffer, if the buffer contains all of it.
pub(crate) fn take<T: DeserializeOwned>(buffer: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err(too_long(length));
    }
    let Some(body) = buffer.get(4..4 + length) else { return Ok(None) };
    let message = serde_json::from_slice(body)?;
    buffer.drain(..4 + length);
    Ok(Some(message))
}
