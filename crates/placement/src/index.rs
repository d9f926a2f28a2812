//! All nodes and reservations, and the only functions that change them.

mod nominations;
mod queries;
mod updates;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::demand::{Demand, PreparedDemand};
use super::node::Node;
use super::outcome::{CannotBind, Placement, PlacementOutcome, Reservation, ReservationState};
use super::ranking::{Rank, Strategy};
use crate::inventory::NodeInventory;
use nominations::Nomination;
pub use nominations::ProposedNode;
pub use queries::FreeTime;

/// Nodes with their GPUs, and the reservations of every pod.
///
/// [`reserve`](Self::reserve) never exceeds a GPU. [`confirm`](Self::confirm) records a binding that has happened, and
/// counts it even if it exceeds the GPU: nothing more is reserved there until it fits.
#[derive(Debug, Default)]
pub struct Index {
    strategy: Strategy,
    pub(crate) nodes: HashMap<Arc<str>, NodeEntry>,
    /// Reservations by pod UID; at most one on each node.
    pods: HashMap<Arc<str>, Vec<Reservation>>,
    /// Deadlines of the reservations that are not confirmed.
    deadlines: BTreeSet<(u64, Arc<str>)>,
    /// Room that is kept for pods whose victims are ending, by node and pod UID.
    nominations: HashMap<Arc<str>, BTreeMap<Arc<str>, Nomination>>,
}

#[derive(Debug, Default)]
pub(crate) struct NodeEntry {
    pub(crate) node: Node,
    /// Pods with a reservation here.
    pub(crate) pods: BTreeSet<Arc<str>>,
}

/// One candidate for the best placement.
struct Candidate<'a> {
    rank: Rank,
    name: &'a Arc<str>,
    node: Cow<'a, Node>,
    positions: Vec<usize>,
}

impl Index {
    /// An index without nodes.
    pub fn new(strategy: Strategy) -> Self {
        Self { strategy, ..Self::default() }
    }

    /// Replaces a node's inventory. Reservations stay, even on GPUs that are not in it.
    pub fn set_node(&mut self, name: &str, inventory: &NodeInventory) {
        let name = self.name_of(name);
        self.nodes.entry(name.clone()).or_default().node = Node::new(inventory);
        self.recount(&name);
    }

    /// Removes a node's GPUs. Reservations stay as long as their pods.
    pub fn remove_node(&mut self, name: &str) {
        self.set_node(name, &NodeInventory::new(0, Vec::new()));
    }

    /// Finds the best GPUs for a pod among `nodes`, and reserves them on up to `most` nodes. The room of nominated pods
    /// of the same or a higher priority is not free.
    ///
    /// Releases reservations of an earlier call first, so that a pod never competes with itself.
    pub fn reserve<'a>(
        &mut self,
        pod: &str,
        demand: &Demand,
        nodes: impl Iterator<Item = &'a str> + Clone,
        most: usize,
        deadline_ns: u64,
    ) -> PlacementOutcome {
        self.release_where(pod, |one| matches!(one.state, ReservationState::Reserved { .. }));
        if let Some(held) = self.held(pod, nodes.clone()) {
            return held;
        }
        let best = self.best(pod, demand, nodes.clone(), most.max(1));
        if best.is_empty() {
            let prepared = PreparedDemand::new(demand);
            return PlacementOutcome::Refused(
                nodes.map(|name| (self.name_of(name), self.reasons(pod, &prepared, name))).collect(),
            );
        }
        let demand = Arc::new(demand.clone());
        for choice in &best {
            let hold = ReservationState::Reserved { deadline_ns };
            let reservation = Reservation {
                node: choice.node.clone(),
                gpus: choice.gpus.clone(),
                demand: demand.clone(),
                state: hold,
            };
            self.insert(pod, reservation);
        }
        PlacementOutcome::Reserved(best)
    }

    /// The caller is about to send a bind of the pod to this node: the reservation stays until the answer is known.
    pub fn begin_bind(&mut self, pod: &str, node: &str, deadline_ns: u64) -> Result<Placement, CannotBind> {
        let reservations = self.pods.get(pod).map(Vec::as_slice).unwrap_or_default();
        if let Some(bound) =
            reservations.iter().find(|reservation| reservation.is_confirmed() && *reservation.node != *node)
        {
            return Err(CannotBind::BoundElsewhere(bound.node.clone()));
        }
        let reservation = reservations
            .iter()
            .find(|reservation| *reservation.node == *node)
            .ok_or(CannotBind::NotReserved)?
            .clone();
        if reservation.is_confirmed() {
            return Ok(self.placement_of(&reservation));
        }
        if let Some(lost) = self.lost(&reservation) {
            return Err(lost);
        }
        let choice = self.placement_of(&reservation);
        self.insert(pod, Reservation { state: ReservationState::Binding { deadline_ns }, ..reservation });
        Ok(choice)
    }

    /// The bind to this node has succeeded: the reservation there is confirmed, and all others of the pod are released.
    ///
    /// Returns false if there is no reservation any more: the pod ended before the answer to its bind was read.
    pub fn bound(&mut self, pod: &str, node: &str) -> bool {
        let Some(reservation) =
            self.reservations(pod).iter().find(|reservation| *reservation.node == *node).cloned()
        else {
            return false;
        };
        self.release(pod);
        self.insert(pod, Reservation { state: ReservationState::Confirmed, ..reservation });
        true
    }

    /// The bind to this node has certainly failed: the reservation there is released.
    pub fn abandon(&mut self, pod: &str, node: &str) {
        self.release_where(pod, |reservation| *reservation.node == *node && !reservation.is_confirmed());
    }

    /// The pod is bound to these GPUs of this node, and to nothing else.
    pub fn confirm(&mut self, pod: &str, node: &str, gpus: &[String], demand: &Demand) {
        let same = |reservation: &Reservation| {
            reservation.is_confirmed()
                && *reservation.node == *node
                && reservation.gpus.iter().map(|gpu| &**gpu).eq(gpus.iter().map(String::as_str))
                && *reservation.demand == *demand
        };
        if matches!(self.pods.get(pod).map(Vec::as_slice), Some([only]) if same(only)) {
            return;
        }
        self.release(pod);
        let mut gpus: Vec<Arc<str>> = gpus.iter().map(|gpu| Arc::from(gpu.as_str())).collect();
        gpus.dedup();
        let reservation = Reservation {
            node: self.name_of(node),
            gpus,
            demand: Arc::new(demand.clone()),
            state: ReservationState::Confirmed,
        };
        self.insert(pod, reservation);
    }

    /// The pod has ended or was deleted: releases its reservations and nominations. Returns whether it had reservations.
    pub fn release(&mut self, pod: &str) -> bool {
        self.remove_nominations(pod, |_| true);
        self.release_where(pod, |_| true)
    }

    /// Releases the reservations and proposed nominations whose deadlines have passed. Returns the number of pods that
    /// lost a reservation.
    pub fn expire(&mut self, now_ns: u64) -> usize {
        self.expire_nominations(now_ns);
        let mut pods = BTreeSet::new();
        while let Some((deadline, _)) = self.deadlines.first()
            && *deadline <= now_ns
        {
            if let Some((_, pod)) = self.deadlines.pop_first() {
                pods.insert(pod);
            }
        }
        let is_over = |one: &Reservation| one.state.deadline_ns().is_some_and(|deadline| deadline <= now_ns);
        pods.iter().filter(|pod| self.release_where(pod, is_over)).count()
    }

    /// Releases every confirmed reservation whose pod does not exist according to the caller.
    pub fn retain_confirmed(&mut self, exists: impl Fn(&str) -> bool) {
        let gone: Vec<Arc<str>> = self.confirmed().filter(|pod| !exists(pod)).cloned().collect();
        for pod in gone {
            self.release(&pod);
        }
    }

    fn held<'a>(&self, pod: &str, mut nodes: impl Iterator<Item = &'a str>) -> Option<PlacementOutcome> {
        let reservations = self.pods.get(pod)?;
        let bound = reservations.iter().find(|reservation| reservation.is_confirmed());
        if let Some(reservation) =
            nodes.find_map(|name| reservations.iter().find(|reservation| *reservation.node == *name))
        {
            return Some(PlacementOutcome::Bound(self.placement_of(reservation)));
        }
        bound.map(|reservation| PlacementOutcome::ReservedElsewhere(reservation.clone()))
    }
}
