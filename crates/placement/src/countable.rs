//! Amounts that the cluster itself counts, as extended resources of nodes and pods: device slots, guaranteed time and
//! memory.
//!
//! `ResourceQuota`, Kueue, the Cluster Autoscaler and the stock scheduler add them up per node or namespace. They do not know
//! single GPUs: whether a pod fits on one is still decided by the [`Index`](crate::Index).

use std::ops::AddAssign;

use crate::annotations::{THOUSANDTH_PPM, keys};
use crate::demand::Demand;
use crate::inventory::{Gpu, NodeInventory};

/// Thousandths of a whole GPU.
pub const WHOLE_MILLI: u64 = 1000;

/// The unit of [`keys::MEMORY_MIB`].
const MIB: u64 = 1 << 20;

/// Amounts of a node, of a GPU or of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Countable {
    /// Device slots: [`keys::RESOURCE`].
    pub slots: u64,
    /// Guaranteed time in thousandths of one GPU: [`keys::MILLI`].
    pub milli: u64,
    /// Memory in MiB: [`keys::MEMORY_MIB`].
    pub memory_mib: u64,
}

impl Countable {
    /// The amounts by the name of their resource.
    pub fn resources(self) -> [(&'static str, u64); 3] {
        [(keys::RESOURCE, self.slots), (keys::MILLI, self.milli), (keys::MEMORY_MIB, self.memory_mib)]
    }
}

impl AddAssign for Countable {
    fn add_assign(&mut self, other: Self) {
        self.slots = self.slots.saturating_add(other.slots);
        self.milli = self.milli.saturating_add(other.milli);
        self.memory_mib = self.memory_mib.saturating_add(other.memory_mib);
    }
}

impl Demand {
    /// What the pod requests on each of its GPUs.
    ///
    /// Memory that follows from the GPU (the quota's part of it, or all of it) counts as 0: it is unknown before the pod
    /// has a GPU, and a request cannot change after the pod's creation. A part of a MiB counts as a whole one.
    pub fn countable_per_gpu(&self) -> Countable {
        Countable {
            slots: self.slots.into(),
            milli: u64::from(self.share.ppm() / THOUSANDTH_PPM),
            memory_mib: self.memory_bytes.map_or(0, |bytes| bytes.div_ceil(MIB)),
        }
    }

    /// What the pod requests on all of its GPUs.
    pub fn countable(&self) -> Countable {
        let mut sum = Countable::default();
        for _ in 0..self.gpus {
            sum += self.countable_per_gpu();
        }
        sum
    }
}

impl NodeInventory {
    /// What the node offers now. `requested` is what the pods on a GPU request.
    ///
    /// A healthy GPU offers all that it has. An unhealthy GPU offers exactly what its pods request: the scheduler
    /// subtracts the requests of all pods of the node, so it would otherwise subtract these from the healthy GPUs.
    pub fn countable(&self, requested: impl Fn(&str) -> Countable) -> Countable {
        let mut sum = Countable::default();
        for gpu in &self.gpus {
            sum += if gpu.healthy { gpu.countable(self.seats_per_gpu) } else { requested(&gpu.uuid) };
        }
        sum
    }
}

impl Gpu {
    /// The memory of the host counts, too: that of pods with overcommitment needs a place there. A sum that the node has does not say that
    /// a GPU has room.
    fn countable(&self, slots: u32) -> Countable {
        Countable {
            slots: slots.into(),
            milli: WHOLE_MILLI,
            memory_mib: self.memory_bytes.saturating_add(self.host_memory_bytes) / MIB,
        }
    }
}
