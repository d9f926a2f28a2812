//! One node: its GPUs, and where on it a pod fits.

use std::collections::HashMap;
use std::sync::Arc;

use super::demand::{Demand, Wanted};
use super::offer::Choice;
use super::rank::{self, Rank, Strategy};
use super::reasons::{GpuName, NodeReasons, Reason};
use super::slot::{Health, Slot};
use super::whole;
use crate::inventory::NodeInventory;

/// How much of a GPU is given, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuUse {
    /// UUID.
    pub gpu: Arc<str>,
    /// Thousandths that are given.
    pub milli: u64,
    /// Bytes that are given.
    pub memory_bytes: u64,
    /// Bytes that it has; 0 if the node does not have it any more.
    pub capacity_bytes: u64,
    /// Pods that hold some of it.
    pub pods: u32,
}

/// GPUs by their position in the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spot {
    One(usize),
    Set(Vec<usize>),
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// GPUs of the inventory in its order, then those that only claims know, by UUID.
    slots: Vec<Slot>,
}

impl Node {
    /// GPUs by the inventory, none of them given.
    pub(crate) fn new(inventory: &NodeInventory) -> Self {
        let mut slots: Vec<Slot> = Vec::with_capacity(inventory.gpus.len());
        let mut positions: HashMap<&str, usize> = HashMap::new();
        for gpu in &inventory.gpus {
            // A UUID that occurs twice is one GPU.
            if !positions.contains_key(gpu.uuid.as_str()) {
                positions.insert(&gpu.uuid, slots.len());
                slots.push(Slot::new(gpu));
            }
        }
        let links =
            inventory.gpus.iter().flat_map(|gpu| gpu.nvlink.iter().map(move |peer| (&gpu.uuid, peer)));
        for (one, other) in links {
            let place = |uuid: &str| positions.get(uuid).copied();
            if let (Some(one), Some(other)) = (place(one), place(other)) {
                // A link has two ends, whichever of them says so.
                for (from, to) in [(one, other), (other, one)].into_iter().filter(|(from, to)| from != to) {
                    if let Some(slot) = slots.get_mut(from) {
                        slot.peers |= whole::bit(to);
                    }
                }
            }
        }
        Self { slots }
    }

    /// Has neither GPUs nor claims.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn slot(&self, uuid: &str) -> Option<&Slot> {
        self.slots.iter().find(|slot| *slot.uuid == *uuid)
    }

    pub(crate) fn add(&mut self, gpus: &[Arc<str>], demand: &Demand) {
        for uuid in gpus {
            match self.slots.iter_mut().find(|slot| slot.uuid == *uuid) {
                Some(slot) => slot.add(demand),
                None => {
                    let mut slot = Slot::gone(uuid.clone());
                    slot.add(demand);
                    let is_before = |one: &Slot| one.health != Health::Gone || one.uuid < *uuid;
                    let place = self.slots.partition_point(is_before);
                    self.slots.insert(place, slot);
                }
            }
        }
    }

    /// Gives a claim back. `others` are the claims that remain on the node: sums are built anew from them, so that
    /// nothing ever drifts.
    pub(crate) fn rebuild<'a>(&mut self, others: impl Iterator<Item = (&'a [Arc<str>], &'a Demand)>) {
        self.slots.retain(|slot| slot.health != Health::Gone);
        for slot in &mut self.slots {
            slot.used = super::slot::Used::default();
        }
        for (gpus, demand) in others {
            self.add(gpus, demand);
        }
    }

    /// The best place on this node, if there is one, and its rank.
    pub(crate) fn fit(&self, wanted: &Wanted<'_>, strategy: Strategy) -> Option<(Rank, Spot)> {
        let demand = wanted.demand;
        if demand.is_whole() {
            let set = whole::best_set(&self.slots, &self.free_positions(wanted), demand.gpus())?;
            let left = self.free_gpus().saturating_sub(set.positions.len() as u64);
            return Some((rank::of_whole(strategy, set.links_missing, left), Spot::Set(set.positions)));
        }
        let free_gpus = self.free_gpus();
        let slots = self.slots.iter().enumerate();
        let fitting = slots.filter(|(_, slot)| slot.admits(demand) && slot.is_selected(wanted));
        let ranked = fitting.map(|(place, slot)| (rank::of_share(strategy, slot, demand, free_gpus), place));
        ranked.min().map(|(rank, place)| (rank, Spot::One(place)))
    }

    /// A place as an answer.
    pub(crate) fn choice(&self, name: &Arc<str>, demand: &Demand, spot: &Spot) -> Choice {
        let places = match spot {
            Spot::One(place) => std::slice::from_ref(place),
            Spot::Set(places) => places,
        };
        let slots: Vec<&Slot> = places.iter().filter_map(|&place| self.slots.get(place)).collect();
        Choice {
            node: name.clone(),
            gpus: slots.iter().map(|slot| slot.uuid.clone()).collect(),
            ordinals: slots.iter().map(|slot| slot.ordinal).collect(),
            memory_bytes: slots.iter().map(|slot| demand.memory_on(slot.memory_bytes)).min().unwrap_or(0),
            take: demand.take,
        }
    }

    fn free_gpus(&self) -> u64 {
        self.slots.iter().filter(|slot| slot.is_free()).count() as u64
    }

    fn free_positions(&self, wanted: &Wanted<'_>) -> Vec<usize> {
        let fitting =
            self.slots.iter().enumerate().filter(|(_, slot)| slot.is_free() && slot.is_selected(wanted));
        fitting.map(|(place, _)| place).collect()
    }

    /// Why it does not fit.
    pub(crate) fn reasons(&self, wanted: &Wanted<'_>) -> NodeReasons {
        let demand = wanted.demand;
        let known: Vec<&Slot> = self.slots.iter().filter(|slot| slot.health != Health::Gone).collect();
        if known.is_empty() {
            return NodeReasons::NoGpus;
        }
        let selected: Vec<&Slot> = known.iter().copied().filter(|slot| slot.is_selected(wanted)).collect();
        if selected.is_empty() {
            return none_selected(&known, demand);
        }
        let against = selected
            .iter()
            .filter_map(|slot| slot.reason_against(demand).map(|reason| (slot.name(), reason)));
        let mut others: Vec<(GpuName, Reason)> = against.collect();
        others.sort_by_key(|(_, reason)| remoteness(reason));
        if demand.is_whole() {
            let free = self.free_positions(wanted).len();
            return NodeReasons::TooFewFree { free, asked: demand.gpus(), others };
        }
        NodeReasons::Gpus(others)
    }

    /// What is given of each GPU.
    pub(crate) fn uses(&self) -> impl Iterator<Item = GpuUse> + '_ {
        self.slots.iter().map(|slot| GpuUse {
            gpu: slot.uuid.clone(),
            milli: slot.used.milli,
            memory_bytes: slot.used.memory_bytes,
            capacity_bytes: slot.memory_bytes,
            pods: slot.used.pods,
        })
    }
}

fn none_selected(known: &[&Slot], demand: &Demand) -> NodeReasons {
    let mut has: Vec<String> = known.iter().map(|slot| slot.model.clone()).collect();
    has.sort();
    has.dedup();
    let models = (!demand.models.is_empty()).then(|| format!("of model {}", demand.models.join(" or ")));
    let uuids = (!demand.uuids.is_empty()).then(|| format!("with UUID {}", demand.uuids.join(" or ")));
    let asked = [models, uuids].into_iter().flatten().collect::<Vec<_>>().join(" and ");
    // Models explain nothing to someone who asked for a UUID.
    NodeReasons::NoneSelected { asked, has: if demand.models.is_empty() { Vec::new() } else { has } }
}

/// How far a GPU is from taking the pod: the nearest is named first.
fn remoteness(reason: &Reason) -> u64 {
    let kind: u64 = match reason {
        Reason::Memory { .. } => 0,
        Reason::Share { .. } => 1,
        Reason::InUse { .. } => 2,
        Reason::HeldWhole => 3,
        Reason::Unhealthy(_) => 4,
        Reason::TooSmall { .. } => 5,
        Reason::Gone => 6,
    };
    let lack = match reason {
        Reason::Memory { free, asked } | Reason::TooSmall { has: free, asked } => {
            asked.saturating_sub(*free) >> 20
        }
        Reason::Share { free, asked } => asked.saturating_sub(*free),
        _ => 0,
    };
    (kind << 48) | lack.min((1 << 48) - 1)
}
