//! Questions to the index that change nothing.

use std::sync::Arc;

use sluice_units::Share;

use super::{Candidate, Index, NodeEntry};
use crate::annotations::Amount;
use crate::demand::{Demand, PreparedDemand};
use crate::gpu_state::Health;
use crate::node::{GpuReservations, Node};
use crate::outcome::{CannotBind, Placement, Reservation};
use crate::ranking;
use crate::reasons::NodeReasons;

/// Free time of GPUs, in parts per million of one GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FreeTime {
    /// All of it.
    pub free_ppm: u64,
    /// The part on GPUs that cannot take a pod of the share in question.
    pub unusable_ppm: u64,
}

impl FreeTime {
    /// The unusable part of the free time, 0 to 1; 0 if no time is free.
    pub fn unusable_ratio(self) -> f64 {
        if self.free_ppm == 0 { 0.0 } else { self.unusable_ppm as f64 / self.free_ppm as f64 }
    }
}

impl Index {
    /// Pods that are known to be bound.
    pub fn confirmed(&self) -> impl Iterator<Item = &Arc<str>> {
        let is_confirmed = |reservations: &[Reservation]| reservations.iter().any(Reservation::is_confirmed);
        self.pods.iter().filter(move |(_, reservations)| is_confirmed(reservations)).map(|(pod, _)| pod)
    }

    /// Pods that may have ended according to the caller, on those nodes where the demand would fit if they had.
    pub fn possibly_ended_pods<'a>(
        &self,
        demand: &Demand,
        nodes: impl Iterator<Item = &'a str>,
        may_have_ended: impl Fn(&str) -> bool,
    ) -> Vec<Arc<str>> {
        let prepared = PreparedDemand::new(demand);
        let mut found = Vec::new();
        for (name, place) in nodes.filter_map(|name| self.nodes.get_key_value(name)) {
            let ended: Vec<&Arc<str>> = place.pods.iter().filter(|pod| may_have_ended(pod)).collect();
            if ended.is_empty() {
                continue;
            }
            let node = self.node_without(name, place, &may_have_ended);
            if node.fit(&prepared, self.strategy).is_some() {
                found.extend(ended.into_iter().cloned());
            }
        }
        found
    }

    /// The node as it is when these pods have ended.
    pub(crate) fn node_without(
        &self,
        name: &str,
        place: &NodeEntry,
        has_ended: impl Fn(&str) -> bool,
    ) -> Node {
        let others = place.pods.iter().filter(|pod| !has_ended(pod)).filter_map(|pod| self.pods.get(pod));
        let others = others.flatten().filter(|reservation| *reservation.node == *name);
        let mut node = place.node.clone();
        node.rebuild(others.map(|reservation| (reservation.gpus.as_slice(), &*reservation.demand)));
        node
    }

    /// The reservations of the pod.
    pub fn reservations(&self, pod: &str) -> &[Reservation] {
        self.pods.get(pod).map(Vec::as_slice).unwrap_or_default()
    }

    /// Reservations on every GPU, node by node.
    pub fn uses(&self) -> impl Iterator<Item = (&Arc<str>, Vec<GpuReservations>)> {
        self.nodes.iter().map(|(name, place)| (name, place.node.uses().collect()))
    }

    /// The free time of the healthy GPUs, and the part of it that is on GPUs which cannot take a pod of this share and the same part of
    /// the memory. Both in parts per million of one GPU.
    pub fn free_time(&self, share: Share) -> FreeTime {
        let demand = Demand::new(Amount::Share(share), None);
        let gpus = self.nodes.values().flat_map(|place| place.node.slots());
        let mut sum = FreeTime::default();
        for gpu in gpus.filter(|gpu| gpu.health == Health::Healthy) {
            sum.free_ppm += gpu.free_ppm();
            if gpu.reason_against(&demand).is_some() {
                sum.unusable_ppm += gpu.free_ppm();
            }
        }
        sum
    }

    /// Number of pods without and with a confirmed reservation.
    pub fn counts(&self) -> (usize, usize) {
        let bound = self.confirmed().count();
        (self.pods.len() - bound, bound)
    }

    /// The GPUs of one node on which [`reserve`](Self::reserve) would place the pod, or the reasons why the pod does not fit there.
    /// Reserves nothing.
    ///
    /// # Errors
    /// The pod does not fit on this node.
    pub fn place_on_node(&self, pod: &str, demand: &Demand, node: &str) -> Result<Placement, NodeReasons> {
        let placement = self.best(pod, demand, std::iter::once(node), 1).pop();
        placement.ok_or_else(|| self.reasons(pod, &PreparedDemand::new(demand), node))
    }

    /// The best places for the pod's demand, best first. Reserves nothing. Takes the room of nominated pods of a lower
    /// priority only if there is no other, and if the pod does not wait for victims of its own.
    pub(crate) fn best<'a>(
        &self,
        pod: &str,
        demand: &Demand,
        nodes: impl Iterator<Item = &'a str> + Clone,
        most: usize,
    ) -> Vec<Placement> {
        let best = self.best_beside(|_| i32::MIN, pod, demand, nodes.clone(), most);
        if best.is_empty() && !self.nominations.is_empty() {
            return self.best_beside(
                |node| self.displaced_below(pod, demand, node),
                pod,
                demand,
                nodes,
                most,
            );
        }
        best
    }

    /// The best places beside the nominated pods of at least the priority of each node.
    fn best_beside<'a>(
        &self,
        priority: impl Fn(&str) -> i32,
        pod: &str,
        demand: &Demand,
        nodes: impl Iterator<Item = &'a str>,
        most: usize,
    ) -> Vec<Placement> {
        let prepared = PreparedDemand::new(demand);
        let mut best: Vec<Candidate<'_>> = Vec::with_capacity(most + 1);
        for name in nodes {
            let Some((name, place)) = self.nodes.get_key_value(name) else { continue };
            let node = self.without_nominated_room(name, place, pod, priority(name));
            let Some((rank, positions)) = node.fit(&prepared, self.strategy) else { continue };
            let candidate = Candidate { rank, name, node, positions };
            // Equal ranks are ordered by name, so that the choice does not depend on the order of the candidates.
            let Err(at) = best.binary_search_by(|one| (one.rank, one.name).cmp(&(rank, name))) else {
                continue;
            };
            if at < most {
                best.insert(at, candidate);
                best.truncate(most);
            }
        }
        // The caller may choose any of the places.
        if best.first().is_some_and(|one| !ranking::is_apart_from_gang(&one.rank)) {
            best.retain(|one| !ranking::is_apart_from_gang(&one.rank));
        }
        if demand.latency_critical {
            // On none does it meet more of its kind than necessary.
            let fewest = best.first().map(|one| ranking::critical_pods(&one.rank));
            best.retain(|one| Some(ranking::critical_pods(&one.rank)) == fewest);
        }
        best.iter().map(|one| self.describe(one.name, one.node.uuids(&one.positions), demand)).collect()
    }

    pub(super) fn reasons(&self, pod: &str, prepared: &PreparedDemand<'_>, node: &str) -> NodeReasons {
        let Some((name, place)) = self.nodes.get_key_value(node) else { return NodeReasons::NoGpus };
        let priority = self.displaced_below(pod, prepared.demand, name);
        self.without_nominated_room(name, place, pod, priority).reasons(prepared)
    }

    /// Describes the GPUs of a reservation.
    pub(super) fn placement_of(&self, one: &Reservation) -> Placement {
        self.describe(&one.node, one.gpus.clone(), &one.demand)
    }

    /// Describes GPUs of a node.
    fn describe(&self, node: &Arc<str>, gpus: Vec<Arc<str>>, demand: &Demand) -> Placement {
        let place = self.nodes.get(node);
        let slots = || gpus.iter().filter_map(|gpu| place.and_then(|place| place.node.slot(gpu)));
        let memory_bytes = slots().map(|slot| demand.memory_on(slot.memory_bytes)).min().unwrap_or(0);
        let ordinals = slots().map(|slot| slot.ordinal).collect();
        Placement { node: node.clone(), ordinals, memory_bytes, share: demand.share, gpus }
    }

    /// The first GPU of a reservation that must not be bound any more: unhealthy, gone, or bound to others without this
    /// index.
    pub(super) fn lost(&self, reservation: &Reservation) -> Option<CannotBind> {
        let place = self.nodes.get(&reservation.node)?;
        let slots = reservation.gpus.iter().filter_map(|gpu| place.node.slot(gpu));
        let mut lost = slots.filter_map(|slot| slot.lost().map(|why| (slot, why)));
        lost.next().map(|(slot, why)| CannotBind::Lost { gpu: slot.name(), why })
    }
}
