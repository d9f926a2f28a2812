//! Commands of a stream, and the identifiers of the engine.

use super::{CollectiveRank, Condition};
use crate::params;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A process that uses the GPU. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(pub usize);

/// A channel group: one context of one process. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u64);

/// A stream of a group. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// How a stream relates to the legacy default stream of its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// The legacy default stream: waits for all blocking streams, and they for it.
    Legacy,
    /// An ordinary or per-thread default stream.
    Blocking,
    /// Created with CU_STREAM_NON_BLOCKING: not ordered with the default stream.
    NonBlocking,
}

impl StreamKind {
    pub(crate) const ALL: [Self; 3] = [Self::Legacy, Self::Blocking, Self::NonBlocking];
}

/// Which engine a copy runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyEngine {
    /// Host memory to device memory.
    ToDevice,
    /// Device memory to host memory.
    ToHost,
    /// Within the device.
    OnDevice,
}

impl CopyEngine {
    pub(crate) const ALL: [Self; 3] = [Self::ToDevice, Self::ToHost, Self::OnDevice];

    /// Time that a copy takes, in nanoseconds.
    pub fn copy_ns(self, bytes: u64) -> u64 {
        let per_us = match self {
            Self::ToDevice | Self::ToHost => params::HOST_LINK_BYTES_PER_US,
            Self::OnDevice => params::DEVICE_COPY_BYTES_PER_US,
        };
        transfer_ns(bytes, per_us)
    }
}

fn transfer_ns(bytes: u64, per_us: u64) -> u64 {
    let ns = u128::from(bytes) * 1_000 / u128::from(per_us);
    params::COPY_LATENCY_NS.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX / 4))
}

/// A piece of work that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// A kernel.
    Kernel {
        /// Time on the GPU without interruption, in nanoseconds.
        ns: u64,
        /// Multiprocessors that it keeps busy, 1 to [`params::SMS`].
        sms: u32,
        /// Index of its name in the owner's table, from [`super::Account::name`].
        name: usize,
    },
    /// A copy.
    Copy {
        /// Engine.
        engine: CopyEngine,
        /// Bytes.
        bytes: u64,
    },
    /// A memset; it runs on the multiprocessors.
    Fill {
        /// Bytes.
        bytes: u64,
    },
    /// A hold kernel of one block, which polls a word of 64 bits.
    Hold {
        /// Address of the word.
        address: u64,
        /// The kernel's other parameters.
        params: HoldParams,
        /// From [`super::Account::name`].
        name: usize,
        /// Tags of the [`super::Record`]s of its begin, of the first change of the activity if it saw one, and of a time that is as long
        /// after its begin as it ran without work of the program.
        times: [u64; 3],
    },
    /// A kernel that spins until the kernels of all ranks have begun. See [`super::Interconnect`], without which it never ends.
    Collective {
        /// Its place.
        rank: CollectiveRank,
        /// Time on the GPU from then on without interruption, in nanoseconds.
        ns: u64,
        /// Multiprocessors that it keeps busy, 1 to [`params::SMS`].
        sms: u32,
        /// From [`super::Account::name`].
        name: usize,
    },
    /// No work: a node that only orders others.
    Empty,
}

/// When a hold kernel ends; see `hook/src/hold_kernel/kernel.ptx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HoldParams {
    /// It ends when the low half of the word has reached this, modulo 2^32.
    pub ticket: u32,
    /// The high half of the word at the launch.
    pub activity: u32,
    /// It ends after this time in which the activity does not change: since its begin,
    pub timeout_ns: u64,
    /// since a change to an even activity,
    pub linger_ns: u64,
    /// or since a change to an odd one;
    pub still_ns: u64,
    /// and after this time in any case.
    pub longest_ns: u64,
}

impl Work {
    /// Time that it takes by itself, in nanoseconds.
    pub fn ns(self) -> u64 {
        match self {
            Self::Kernel { ns, .. } | Self::Collective { ns, .. } => ns.max(1),
            Self::Copy { engine, bytes } => engine.copy_ns(bytes),
            Self::Fill { bytes } => transfer_ns(bytes, params::FILL_BYTES_PER_US),
            Self::Hold { .. } => params::MIN_KERNEL_NS,
            Self::Empty => 0,
        }
    }

    /// Index of a kernel's name; `None` for what is no kernel.
    pub fn name(self) -> Option<usize> {
        match self {
            Self::Kernel { name, .. } | Self::Hold { name, .. } | Self::Collective { name, .. } => Some(name),
            Self::Copy { .. } | Self::Fill { .. } | Self::Empty => None,
        }
    }

    fn is_kernel(self) -> bool {
        self.name().is_some()
    }
}

/// A node of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its work.
    pub work: Work,
    /// Nodes that wait for it; each index is larger than the node's own.
    pub successors: Vec<usize>,
}

/// A graph of work that is launched as one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    /// In topological order.
    pub(super) nodes: Vec<Node>,
    pub(super) indegrees: Vec<usize>,
    longest_ns: u64,
    kernels: u64,
    /// Begins again at its end, for ever.
    pub(super) relaunches: bool,
}

impl Graph {
    /// A graph of nodes in topological order; `None` if a successor does not come later than its node. `relaunches`: its last kernel launches
    /// the graph again, as one can that is instantiated for launches by the device. A graph without kernels has none that could.
    pub fn new(nodes: Vec<Node>, relaunches: bool) -> Option<Self> {
        let mut indegrees = vec![0usize; nodes.len()];
        let mut begins = vec![0u64; nodes.len()];
        let mut longest_ns = 0;
        for (index, node) in nodes.iter().enumerate() {
            let end = begins[index].saturating_add(node.work.ns());
            longest_ns = longest_ns.max(end);
            for &successor in &node.successors {
                if successor <= index {
                    return None;
                }
                *indegrees.get_mut(successor)? += 1;
                begins[successor] = begins[successor].max(end);
            }
        }
        let kernels = nodes.iter().filter(|node| node.work.is_kernel()).count() as u64;
        Some(Self { nodes, indegrees, longest_ns, kernels, relaunches: relaunches && kernels > 0 })
    }
}

/// A command of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// One piece of work.
    Work(Work),
    /// Several pieces of work as one command.
    Graph(Arc<Graph>),
    /// Reports the time at which the stream reaches the command, as a [`super::Record`] with this tag.
    Record {
        /// Chosen by the caller.
        tag: u64,
    },
    /// Waits until another stream has completed a command.
    Wait {
        /// The other stream.
        stream: StreamId,
        /// Number of the command.
        seq: u64,
    },
    /// Stops the stream until [`super::Engine::host_done`].
    Host,
    /// Waits for a word in memory; without a condition, writes one.
    MemOp(Option<Condition>),
}

impl Command {
    /// The least time that it takes, in nanoseconds.
    pub(super) fn least_ns(&self) -> u64 {
        match self {
            Self::Work(work) => work.ns(),
            Self::Graph(graph) => graph.longest_ns,
            Self::Record { .. } | Self::Wait { .. } | Self::Host | Self::MemOp(_) => 0,
        }
    }

    /// Whether it needs the multiprocessors.
    pub(super) fn needs_slice(&self) -> bool {
        let needs = |work: &Work| work.is_kernel() || matches!(work, Work::Fill { .. });
        match self {
            Self::Work(work) => needs(work),
            Self::Graph(graph) => graph.nodes.iter().any(|node| needs(&node.work)),
            Self::Record { .. } | Self::Wait { .. } | Self::Host | Self::MemOp(_) => false,
        }
    }

    pub(super) fn kernels(&self) -> u64 {
        match self {
            Self::Work(work) if work.is_kernel() => 1,
            Self::Graph(graph) => graph.kernels,
            _ => 0,
        }
    }
}
