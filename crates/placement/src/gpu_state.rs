//! One GPU of a node: what it has, and how much of it is given.

use std::sync::Arc;

use super::demand::{Demand, Wanted, model_key};
use super::reasons::{GpuName, Reason};
use super::whole::Mask;
use crate::annotations::WHOLE_MILLI;
use crate::inventory::Gpu;

/// May new pods come to it?
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    Healthy,
    Unhealthy(String),
    /// Pods hold it, but the node's inventory does not name it (any more, or yet).
    Gone,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) uuid: Arc<str>,
    pub(crate) ordinal: u32,
    pub(crate) model: String,
    model_key: String,
    pub(crate) memory_bytes: u64,
    pub(crate) health: Health,
    /// GPUs that an NVLink leads to, as bits of positions in the node.
    pub(crate) peers: Mask,
    pub(crate) used: Used,
}

/// What is given of a GPU: the sum over the claims on it. It can exceed the GPU where it was not this index that gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) milli: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) pods: u32,
    /// Of the pods, those that hold it whole.
    pub(crate) whole: u32,
}

impl Slot {
    pub(crate) fn new(gpu: &Gpu) -> Self {
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
            health,
            peers: 0,
            used: Used::default(),
        }
    }

    /// A GPU that is known only because a pod holds it.
    pub(crate) fn gone(uuid: Arc<str>) -> Self {
        Self {
            uuid,
            ordinal: u32::MAX,
            model: String::new(),
            model_key: String::new(),
            memory_bytes: 0,
            health: Health::Gone,
            peers: 0,
            used: Used::default(),
        }
    }

    pub(crate) fn name(&self) -> GpuName {
        GpuName { ordinal: self.ordinal, uuid: self.uuid.clone() }
    }

    pub(crate) fn free_milli(&self) -> u64 {
        u64::from(WHOLE_MILLI).saturating_sub(self.used.milli)
    }

    pub(crate) fn free_memory(&self) -> u64 {
        self.memory_bytes.saturating_sub(self.used.memory_bytes)
    }

    /// Healthy, and nobody holds any of it.
    pub(crate) fn is_free(&self) -> bool {
        self.health == Health::Healthy && self.used.pods == 0
    }

    /// Why what is reserved of it must not be bound, if so.
    pub(crate) fn lost(&self) -> Option<String> {
        match &self.health {
            Health::Gone => Some(Reason::Gone.to_string()),
            Health::Unhealthy(reason) => Some(Reason::Unhealthy(reason.clone()).to_string()),
            Health::Healthy if self.is_oversubscribed() => Some("has been given to others".to_owned()),
            Health::Healthy => None,
        }
    }

    /// More is given of it than it has.
    pub(crate) fn is_oversubscribed(&self) -> bool {
        self.used.milli > u64::from(WHOLE_MILLI)
            || self.used.memory_bytes > self.memory_bytes
            || (self.used.whole > 0 && self.used.pods > 1)
    }

    pub(crate) fn add(&mut self, demand: &Demand) {
        self.used.milli += u64::from(demand.milli_per_gpu());
        // Saturating: memory of an annotation is the user's number; the sum stays above every GPU's memory.
        self.used.memory_bytes = self.used.memory_bytes.saturating_add(demand.memory_on(self.memory_bytes));
        self.used.pods += 1;
        self.used.whole += u32::from(demand.is_whole());
    }

    /// Is it one of those that the pod selects?
    pub(crate) fn is_selected(&self, wanted: &Wanted<'_>) -> bool {
        let uuids = &wanted.demand.uuids;
        (wanted.model_keys.is_empty() || wanted.model_keys.contains(&self.model_key))
            && (uuids.is_empty() || uuids.iter().any(|uuid| **uuid == *self.uuid))
    }

    /// Does one more pod like this fit on it?
    pub(crate) fn admits(&self, demand: &Demand) -> bool {
        if demand.is_whole() {
            return self.is_free();
        }
        self.health == Health::Healthy
            && self.used.whole == 0
            && self.free_milli() >= u64::from(demand.milli_per_gpu())
            && self.free_memory() >= demand.memory_on(self.memory_bytes)
    }

    /// Why not: the first of the reasons, in the order in which they could be remedied. `None`: it does admit.
    pub(crate) fn reason_against(&self, demand: &Demand) -> Option<Reason> {
        let milli = u64::from(demand.milli_per_gpu());
        let memory = demand.memory_on(self.memory_bytes);
        match &self.health {
            Health::Gone => return Some(Reason::Gone),
            Health::Unhealthy(reason) => return Some(Reason::Unhealthy(reason.clone())),
            Health::Healthy => {}
        }
        if demand.is_whole() {
            return (self.used.pods > 0).then_some(Reason::InUse { pods: self.used.pods });
        }
        if memory > self.memory_bytes {
            return Some(Reason::TooSmall { has: self.memory_bytes, asked: memory });
        }
        if self.used.whole > 0 {
            return Some(Reason::HeldWhole);
        }
        if self.free_milli() < milli {
            return Some(Reason::Share { free: self.free_milli(), asked: milli });
        }
        (self.free_memory() < memory).then(|| Reason::Memory { free: self.free_memory(), asked: memory })
    }
}
