//! Requests and answers over the socket: a length of four bytes, little-endian, and JSON.

use crate::engine::Node;
use crate::fault::Fault;
use crate::identity::PciAddress;
use crate::ledger::{Interval, Ledger, Window};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;

/// Version of everything between client and daemon; the two are built together.
pub(crate) const VERSION: u32 = 3;
/// The longest message, in bytes.
pub(crate) const LONGEST: usize = 64 << 20;

/// What a peer may ask.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// First of a process that wants to use the GPU. The answer brings the shared memory and an eventfd to poke with.
    Hello { version: u32, label: String },
    /// An open file of the control device; it comes with the answer.
    OpenControl,
    /// A context; its channel group's number is the answer.
    OpenContext { control: Option<ControlGroup> },
    /// The context is gone with everything in it.
    CloseContext { group: u64 },
    /// Device memory.
    Allocate { bytes: u64 },
    /// Device memory back.
    Free { bytes: u64 },
    /// Memory of the whole GPU.
    Memory,
    /// Index of a kernel's name.
    Name { name: String },
    /// A graph, by its nodes in topological order.
    AddGraph { nodes: Vec<Node> },
    /// The graph is not launched again.
    DropGraph { graph: u64 },
    /// The GPU's properties.
    Gpu,
    /// Everything counted.
    Ledger,
    /// Use in a window of time.
    Window { from_ns: u64, to_ns: u64 },
    /// Who had the GPU when.
    Timeline { from_ns: u64, to_ns: u64 },
    /// Something goes wrong on the GPU.
    Inject { xid: u64 },
    /// Whatever is wrong is repaired.
    Heal,
    /// From now on this connection is told of every Xid.
    Listen,
    /// A process is held at its next call of the driver; answered when nothing of it is under way. 0 ms are no limit.
    Lock { pid: i32, timeout_ms: u32 },
    /// It goes on.
    Unlock { pid: i32 },
    /// Whether it is held: 0 or 1.
    LockState { pid: i32 },
}

impl Request {
    /// Whether the driver needs the lock for it that controls hold meanwhile (`gpu-measurements.md` §15).
    pub(crate) fn needs_driver(&self) -> bool {
        matches!(
            self,
            Self::Allocate { .. } | Self::Free { .. } | Self::OpenContext { .. } | Self::CloseContext { .. }
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
    /// It is another user's.
    NotPermitted,
    /// It is locked already, or is not.
    WrongState,
    /// What it has under way took too long; it goes on undisturbed.
    NotInTime,
}

/// What the daemon answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Done.
    Done,
    /// Not done: the GPU has not so much memory left.
    OutOfMemory,
    /// Not done: the compute mode does not let this process in.
    Unavailable,
    /// Not done, and why.
    Refused { why: String },
    /// A number that was asked for.
    Number(u64),
    /// Free and total bytes.
    Memory { free: u64, total: u64 },
    /// The GPU's properties.
    Gpu(GpuInfo),
    /// Everything counted.
    Ledger(Box<Ledger>),
    /// Use in a window of time.
    Window(Window),
    /// Who had the GPU when.
    Timeline(Vec<Interval>),
    /// A process was not locked or unlocked.
    NotLocked(LockFailure),
    /// Something has gone wrong on the GPU: told without a question, after [`Request::Listen`].
    Xid { code: u64 },
}

/// What a process may know of the GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInfo {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: [u8; 16],
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// Place on the bus.
    pub pci: PciAddress,
    /// NUMA node of the host.
    pub numa: Option<u32>,
    /// Where its NVLinks lead.
    pub links: Vec<PciAddress>,
    /// It is in MIG mode.
    pub is_mig: bool,
    /// Streams can wait for words in memory, and write them.
    pub has_mem_ops: bool,
    /// Version that its driver says it has.
    pub driver_version: String,
    /// CU_COMPUTEMODE: 0 takes several processes, 2 none, 3 one.
    pub compute_mode: i32,
    /// Its driver says that processes are clients of an MPS server; each has channel groups of its own whatever this says.
    pub is_mps: bool,
    /// What is wrong with it.
    pub fault: Option<Fault>,
}

/// A message as bytes.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= LONGEST);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "message too long"))?;
    Ok([length.to_le_bytes().as_slice(), &body].concat())
}

/// Takes one message off the front of a buffer, if it is there to its end.
pub(crate) fn take<T: DeserializeOwned>(buffer: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("message of {length} bytes")));
    }
    let Some(body) = buffer.get(4..4 + length) else { return Ok(None) };
    let message = serde_json::from_slice(body)?;
    buffer.drain(..4 + length);
    Ok(Some(message))
}
