//! One GPU of a node: its capacity, health and reservations.

use std::sync::Arc;

use sluice_units::WHOLE_PPM;

use super::demand::{Demand, PreparedDemand, model_key};
use super::memory_use::{MemoryUse, on_host};
use super::ranking::Mask;
use super::reasons::{GpuName, Reason};
use crate::inventory::Gpu;

/// Health of a GPU: only a healthy one accepts new pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    Healthy,
    Unhealthy(String),
    /// Pods use it, but the node's inventory does not contain it (any more, or yet).
    Gone,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuState {
    pub(crate) uuid: Arc<str>,
    pub(crate) ordinal: u32,
    pub(crate) model: String,
    model_key: String,
    pub(crate) memory_bytes: u64,
    /// Bytes of the host for memory that leaves the GPU.
    host_memory_bytes: u64,
    /// Device slots of the GPU.
    pub(crate) slots: u32,
    pub(crate) health: Health,
    /// The NUMA node of the host, if it is known.
    pub(crate) numa: Option<u32>,
    /// GPUs with an NVLink to this one, as bits of positions in the node.
    pub(crate) peers: Mask,
    /// GPUs of other NUMA nodes.
    pub(crate) far: Mask,
    /// It is an instance of a GPU in MIG mode.
    is_instance: bool,
    /// Only one pod may have it.
    is_for_one_pod: bool,
    pub(crate) used: Used,
}

/// The sum of the reservations on a GPU. It can exceed the GPU if pods were bound without this index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Reserved time, parts per million of the GPU.
    pub(crate) ppm: u64,
    pub(crate) memory: MemoryUse,
    pub(crate) pods: u32,
    pub(crate) slots: u32,
    /// Pods that have the whole GPU.
    pub(crate) whole: u32,
    /// Latency-critical pods.
    pub(crate) critical: u32,
    /// Gangs of its pods.
    pub(crate) gangs: Vec<Arc<str>>,
}

impl Used {
    /// With one more pod, on a GPU with this much memory.
    pub(crate) fn and(mut self, demand: &Demand, gpu_memory_bytes: u64) -> Self {
        self.gangs.extend(demand.gang.clone());
        Self {
            ppm: self.ppm + u64::from(demand.share.ppm()),
            memory: self.memory.and(demand.memory_on(gpu_memory_bytes), demand.overcommits),
            pods: self.pods + 1,
            slots: self.slots.saturating_add(demand.slots),
            whole: self.whole + u32::from(demand.is_whole()),
            critical: self.critical + u32::from(demand.latency_critical),
            gangs: self.gangs,
        }
    }
}

impl GpuState {
    pub(crate) fn new(gpu: &Gpu, slots: u32) -> Self {
        let health = if gpu.healthy {
            Health::Healthy
        } else {
            Health::Unhealthy(gpu.unhealthy_reason.clone().unwrap_or_else(|| "no reason given".to_owned()))
        };
        Self {
            uuid: gpu.uuid.as_str().into(),
            ordinal: gpu.index,
            model: gpu.model.clone(),
            model_key: model_key(&gpu.model),
            memory_bytes: gpu.memory_bytes,
            host_memory_bytes: gpu.host_memory_bytes,
            slots,
            health,
            numa: gpu.numa,
            peers: 0,
            far: 0,
            is_instance: gpu.mig.is_some(),
            is_for_one_pod: gpu.is_for_one_pod(),
            used: Used::default(),
        }
    }

    /// A GPU that is known only because a pod uses it.
    pub(crate) fn gone(uuid: Arc<str>) -> Self {
        Self {
            uuid,
            ordinal: u32::MAX,
            model: String::new(),
            model_key: String::new(),
            memory_bytes: 0,
            host_memory_bytes: 0,
            slots: 0,
            health: Health::Gone,
            numa: None,
            peers: 0,
            far: 0,
            is_instance: false,
            is_for_one_pod: false,
            used: Used::default(),
        }
    }

    pub(crate) fn name(&self) -> GpuName {
        GpuName { ordinal: self.ordinal, uuid: self.uuid.clone() }
    }

    pub(crate) fn free_ppm(&self) -> u64 {
        u64::from(WHOLE_PPM).saturating_sub(self.used.ppm)
    }

    /// Whether it is healthy and without pods.
    pub(crate) fn is_free(&self) -> bool {
        self.health == Health::Healthy && self.used.pods == 0
    }

    /// The reason why it takes no pod at all, if there is one.
    fn fault(&self) -> Option<Reason> {
        match &self.health {
            Health::Gone => Some(Reason::Gone),
            Health::Unhealthy(reason) => Some(Reason::Unhealthy(reason.clone())),
            Health::Healthy => None,
        }
    }

    /// The reason why a reservation on it must not be bound, if there is one.
    pub(crate) fn lost(&self) -> Option<String> {
        let given_away = || self.is_oversubscribed().then(|| "has been given to others".to_owned());
        self.fault().map(|reason| reason.to_string()).or_else(given_away)
    }

    /// Whether its reservations exceed its capacity.
    pub(crate) fn is_oversubscribed(&self) -> bool {
        self.used.ppm > u64::from(WHOLE_PPM)
            || self.used.memory.on_gpu() > self.memory_bytes
            || (self.lacks_host_memory(&self.used) && self.used.memory.exceeds(self.memory_bytes))
            || ((self.used.whole > 0 || self.is_for_one_pod) && self.used.pods > 1)
    }

    /// Whether the host does not hold what its pods were promised, because its memory was lowered. Then their memory stays on the GPU.
    fn lacks_host_memory(&self, used: &Used) -> bool {
        used.memory.on_host() > self.host_memory_bytes
    }

    pub(crate) fn add(&mut self, demand: &Demand) {
        self.used = std::mem::take(&mut self.used).and(demand, self.memory_bytes);
    }

    /// Whether the pod's selectors match it.
    pub(crate) fn is_selected(&self, prepared: &PreparedDemand<'_>) -> bool {
        let uuids = &prepared.demand.uuids;
        (prepared.model_keys.is_empty() || prepared.model_keys.contains(&self.model_key))
            && (uuids.is_empty() || uuids.iter().any(|uuid| **uuid == *self.uuid))
    }

    /// The reason why the demand does not fit, the easiest to resolve first. `None` if it fits.
    pub(crate) fn reason_against(&self, demand: &Demand) -> Option<Reason> {
        self.reason_with(&self.used, demand)
    }

    /// The reason why the demand does not fit beside these reservations.
    pub(crate) fn reason_with(&self, used: &Used, demand: &Demand) -> Option<Reason> {
        let share = u64::from(demand.share.ppm());
        let memory = demand.memory_on(self.memory_bytes);
        if let Some(fault) = self.fault() {
            return Some(fault);
        }
        // A part of an instance is no part of a GPU, and CUDA uses one instance in a process.
        if self.is_instance && (demand.gpus > 1 || (demand.models.is_empty() && demand.uuids.is_empty())) {
            return Some(Reason::Instance);
        }
        if demand.is_whole() {
            return (used.pods > 0).then_some(Reason::InUse { pods: used.pods });
        }
        if memory > self.memory_bytes {
            return Some(Reason::TooSmall { has: self.memory_bytes, asked: memory });
        }
        if used.whole > 0 || (self.is_for_one_pod && used.pods > 0) {
            return Some(Reason::HeldWhole);
        }
        if demand.gang.as_ref().is_some_and(|gang| used.gangs.contains(gang)) {
            return Some(Reason::SameGang);
        }
        if used.slots.saturating_add(demand.slots) > self.slots {
            return Some(Reason::Slots { has: self.slots, used: used.slots, asked: demand.slots });
        }
        let free_ppm = u64::from(WHOLE_PPM).saturating_sub(used.ppm);
        if free_ppm < share {
            return Some(Reason::Share { free: free_ppm, asked: share });
        }
        if demand.overcommits {
            let (has, asked) = (self.host_memory_bytes, on_host(memory));
            let free = has.saturating_sub(used.memory.on_host());
            if free < asked {
                return Some(Reason::HostMemory { has, free, asked });
            }
        }
        let free = if self.lacks_host_memory(used) {
            self.memory_bytes.saturating_sub(used.memory.sum())
        } else {
            used.memory.room(self.memory_bytes, demand.overcommits)
        };
        (free < memory).then_some(Reason::Memory { free, asked: memory })
    }
}
