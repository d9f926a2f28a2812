//! One node: its GPUs, and the GPUs of it on which a pod fits.

use std::collections::HashMap;
use std::sync::Arc;

use super::demand::{Demand, PreparedDemand};
use super::gangs::Gangs;
use super::gpu_state::{GpuState, Health};
use super::ranking::{self, Rank, RankedGpu, Strategy};
use super::reasons::{GpuName, NodeReasons, Reason};
use crate::inventory::NodeInventory;

/// Reservations on a GPU, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuReservations {
    /// UUID.
    pub gpu: Arc<str>,
    /// Reserved time, parts per million of the GPU.
    pub ppm: u64,
    /// Reserved bytes: what its pods need on it at the same time.
    pub memory_bytes: u64,
    /// Pods with a reservation on it.
    pub pods: u32,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// GPUs of the inventory in its order, then GPUs that only reservations name, by UUID.
    slots: Vec<GpuState>,
    gangs: Gangs,
}

impl Node {
    /// The GPUs of an inventory, without reservations.
    pub(crate) fn new(inventory: &NodeInventory) -> Self {
        let mut slots: Vec<GpuState> = Vec::with_capacity(inventory.gpus.len());
        let mut positions: HashMap<&str, usize> = HashMap::new();
        for gpu in &inventory.gpus {
            // A UUID that occurs twice is one GPU.
            if !positions.contains_key(gpu.uuid.as_str()) {
                positions.insert(&gpu.uuid, slots.len());
                slots.push(GpuState::new(gpu, inventory.seats_per_gpu));
            }
        }
        let links =
            inventory.gpus.iter().flat_map(|gpu| gpu.nvlink.iter().map(move |peer| (&gpu.uuid, peer)));
        for (one, other) in links {
            let place = |uuid: &str| positions.get(uuid).copied();
            if let (Some(one), Some(other)) = (place(one), place(other)) {
                // A link is symmetric, even if only one of its ends reports it.
                for (from, to) in [(one, other), (other, one)].into_iter().filter(|(from, to)| from != to) {
                    if let Some(slot) = slots.get_mut(from) {
                        slot.peers |= ranking::bit(to);
                    }
                }
            }
        }
        let numa: Vec<Option<u32>> = slots.iter().map(|slot| slot.numa).collect();
        for slot in &mut slots {
            let is_far = |other: &Option<u32>| slot.numa.is_some() && other.is_some() && *other != slot.numa;
            let far = numa.iter().enumerate().filter(|(_, other)| is_far(other));
            slot.far = far.fold(0, |mask, (at, _)| mask | ranking::bit(at));
        }
        Self { slots, gangs: Gangs::default() }
    }

    /// Whether it has neither GPUs nor reservations.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn slots(&self) -> &[GpuState] {
        &self.slots
    }

    pub(crate) fn slot(&self, uuid: &str) -> Option<&GpuState> {
        self.slots.iter().find(|slot| *slot.uuid == *uuid)
    }

    pub(crate) fn gangs(&self) -> &Gangs {
        &self.gangs
    }

    pub(crate) fn add(&mut self, gpus: &[Arc<str>], demand: &Demand) {
        self.gangs.add(gpus, demand);
        for uuid in gpus {
            match self.slots.iter_mut().find(|slot| slot.uuid == *uuid) {
                Some(slot) => slot.add(demand),
                None => {
                    let mut slot = GpuState::gone(uuid.clone());
                    slot.add(demand);
                    let is_before = |one: &GpuState| one.health != Health::Gone || one.uuid < *uuid;
                    let place = self.slots.partition_point(is_before);
                    self.slots.insert(place, slot);
                }
            }
        }
    }

    /// Recomputes the sums from the reservations that remain on the node, so that they never drift.
    pub(crate) fn rebuild<'a>(&mut self, others: impl Iterator<Item = (&'a [Arc<str>], &'a Demand)>) {
        self.slots.retain(|slot| slot.health != Health::Gone);
        for slot in &mut self.slots {
            slot.used = super::gpu_state::Used::default();
        }
        self.gangs = Gangs::default();
        for (gpus, demand) in others {
            self.add(gpus, demand);
        }
    }

    /// The best GPUs on this node by their positions, and their rank, if the demand fits.
    pub(crate) fn fit(
        &self,
        prepared: &PreparedDemand<'_>,
        strategy: Strategy,
    ) -> Option<(Rank, Vec<usize>)> {
        let demand = prepared.demand;
        let has_slot = |positions: &[usize]| self.gangs.excess(&self.uuids(positions), demand).is_none();
        let fitting = self.fitting(prepared, strategy);
        let (rank, positions) = ranking::best_accepted_set(fitting, demand.gpus as usize, has_slot)?;
        let is_apart = demand.gang.as_ref().is_some_and(|gang| !self.has_pod_of(gang));
        Some((if is_apart { ranking::apart_from_gang(rank) } else { rank }, positions))
    }

    /// The GPUs on which the demand fits, each by itself.
    fn fitting(&self, prepared: &PreparedDemand<'_>, strategy: Strategy) -> Vec<RankedGpu> {
        let demand = prepared.demand;
        let free_gpus = self.free_gpus();
        let slots = self.slots.iter().enumerate();
        let fitting =
            slots.filter(|(_, slot)| slot.is_selected(prepared) && slot.reason_against(demand).is_none());
        let ranked = fitting.map(|(position, slot)| RankedGpu {
            rank: ranking::of_gpu(strategy, slot, demand, free_gpus),
            position,
            peers: slot.peers,
            far: slot.far,
        });
        ranked.collect()
    }

    fn has_pod_of(&self, gang: &Arc<str>) -> bool {
        self.slots.iter().any(|slot| slot.used.gangs.contains(gang))
    }

    /// UUIDs of the GPUs at these positions.
    pub(crate) fn uuids(&self, positions: &[usize]) -> Vec<Arc<str>> {
        positions.iter().filter_map(|&position| Some(self.slots.get(position)?.uuid.clone())).collect()
    }

    fn free_gpus(&self) -> u64 {
        self.slots.iter().filter(|slot| slot.is_free()).count() as u64
    }

    /// The reasons why the demand does not fit.
    pub(crate) fn reasons(&self, prepared: &PreparedDemand<'_>) -> NodeReasons {
        let demand = prepared.demand;
        let known: Vec<&GpuState> = self.slots.iter().filter(|slot| slot.health != Health::Gone).collect();
        if known.is_empty() {
            return NodeReasons::NoGpus;
        }
        let selected: Vec<&GpuState> =
            known.iter().copied().filter(|slot| slot.is_selected(prepared)).collect();
        if selected.is_empty() {
            return none_selected(&known, demand);
        }
        let against = selected
            .iter()
            .filter_map(|slot| slot.reason_against(demand).map(|reason| (slot.name(), reason)));
        let mut refused: Vec<(GpuName, Reason)> = against.collect();
        refused.sort_by_key(|(_, reason)| remoteness(reason));
        let asked = demand.gpus as usize;
        let fitting = self.fitting(prepared, Strategy::default());
        if let Some((_, positions)) = ranking::best_set(fitting.into_iter(), asked)
            && let Some(together_ppm) = self.gangs.excess(&self.uuids(&positions), demand)
        {
            return NodeReasons::NoSlot { asked_ppm: u64::from(demand.share.ppm()), together_ppm };
        }
        NodeReasons::TooFewGpus { fitting: selected.len() - refused.len(), asked, refused }
    }

    /// Reservations on each GPU.
    pub(crate) fn uses(&self) -> impl Iterator<Item = GpuReservations> + '_ {
        self.slots.iter().map(|slot| GpuReservations {
            gpu: slot.uuid.clone(),
            ppm: slot.used.ppm,
            memory_bytes: slot.used.memory.on_gpu(),
            pods: slot.used.pods,
        })
    }
}

fn none_selected(known: &[&GpuState], demand: &Demand) -> NodeReasons {
    let mut has: Vec<String> = known.iter().map(|slot| slot.model.clone()).collect();
    has.sort();
    has.dedup();
    let models = (!demand.models.is_empty()).then(|| format!("of model {}", demand.models.join(" or ")));
    let uuids = (!demand.uuids.is_empty()).then(|| format!("with UUID {}", demand.uuids.join(" or ")));
    let asked = [models, uuids].into_iter().flatten().collect::<Vec<_>>().join(" and ");
    // The node's models are listed only if the pod selects a model.
    NodeReasons::NoneSelected { asked, has: if demand.models.is_empty() { Vec::new() } else { has } }
}

/// How far a GPU is from fitting the pod. Messages name the nearest first.
fn remoteness(reason: &Reason) -> u64 {
    let kind: u64 = match reason {
        Reason::Memory { .. } => 0,
        Reason::HostMemory { .. } => 1,
        Reason::Share { .. } => 2,
        Reason::Slots { .. } => 3,
        Reason::InUse { .. } => 4,
        Reason::HeldWhole => 5,
        Reason::SameGang => 6,
        Reason::Unhealthy(_) => 7,
        Reason::TooSmall { .. } => 8,
        Reason::Gone => 9,
        Reason::Instance => 10,
    };
    let lack = match reason {
        Reason::Memory { free, asked }
        | Reason::HostMemory { free, asked, .. }
        | Reason::TooSmall { has: free, asked } => asked.saturating_sub(*free) >> 20,
        Reason::Share { free, asked } => asked.saturating_sub(*free),
        _ => 0,
    };
    (kind << 48) | lack.min((1 << 48) - 1)
}
