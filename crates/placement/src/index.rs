//! All nodes, all claims, and the only functions that change them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::claim::{Claim, Hold};
use super::demand::{Demand, Wanted};
use super::node::{GpuUse, Node, Spot};
use super::offer::{CannotBind, Choice, Offer};
use super::rank::{Rank, Strategy};
use super::reasons::NodeReasons;
use crate::inventory::NodeInventory;

/// Nodes with their GPUs, and what every pod holds of them.
///
/// What [`reserve`](Self::reserve) gives never exceeds a GPU. What [`confirm`](Self::confirm) says has happened, and
/// counts whether it fits or not: nothing more is given until it does.
#[derive(Debug, Default)]
pub struct Index {
    strategy: Strategy,
    nodes: HashMap<Arc<str>, Place>,
    /// Claims by pod UID; at most one on each node.
    pods: HashMap<Arc<str>, Vec<Claim>>,
    /// When claims that are not confirmed end.
    deadlines: BTreeSet<(u64, Arc<str>)>,
}

#[derive(Debug, Default)]
struct Place {
    node: Node,
    /// Pods that have a claim here.
    pods: BTreeSet<Arc<str>>,
}

/// A place among others, not yet written out.
struct Candidate<'a> {
    rank: Rank,
    name: &'a Arc<str>,
    node: &'a Node,
    spot: Spot,
}

impl Index {
    /// Without nodes.
    pub fn new(strategy: Strategy) -> Self {
        Self { strategy, ..Self::default() }
    }

    /// A node's GPUs are these now. Claims stay, also on GPUs that are not among them.
    pub fn set_node(&mut self, name: &str, inventory: &NodeInventory) {
        let name = self.name_of(name);
        self.nodes.entry(name.clone()).or_default().node = Node::new(inventory);
        self.recount(&name);
    }

    /// A node has no GPUs any more. Claims stay as long as their pods do.
    pub fn remove_node(&mut self, name: &str) {
        self.set_node(name, &NodeInventory::new(0, Vec::new()));
    }

    /// Finds the best places for a pod among `nodes`, and holds up to `most` of them for it.
    ///
    /// What an earlier call reserved for the pod is given back first, so that a pod never competes with itself.
    pub fn reserve<'a>(
        &mut self,
        pod: &str,
        demand: &Demand,
        nodes: impl Iterator<Item = &'a str> + Clone,
        most: usize,
        deadline_ns: u64,
    ) -> Offer {
        self.drop_claims(pod, |hold| matches!(hold, Hold::Reserved { .. }));
        if let Some(held) = self.held(pod, nodes.clone()) {
            return held;
        }
        let best = self.best(demand, nodes.clone(), most.max(1));
        if best.is_empty() {
            let wanted = Wanted::new(demand);
            return Offer::Refused(
                nodes.map(|name| (self.name_of(name), self.reasons(&wanted, name))).collect(),
            );
        }
        let demand = Arc::new(demand.clone());
        for choice in &best {
            let hold = Hold::Reserved { deadline_ns };
            let claim =
                Claim { node: choice.node.clone(), gpus: choice.gpus.clone(), demand: demand.clone(), hold };
            self.insert(pod, claim);
        }
        Offer::Reserved(best)
    }

    /// A bind of the pod to this node is about to be sent: the claim is held until the answer is known.
    ///
    /// # Errors
    /// It must not be sent.
    pub fn begin_bind(&mut self, pod: &str, node: &str, deadline_ns: u64) -> Result<Choice, CannotBind> {
        let claims = self.pods.get(pod).map(Vec::as_slice).unwrap_or_default();
        if let Some(bound) = claims.iter().find(|claim| claim.hold == Hold::Confirmed && *claim.node != *node)
        {
            return Err(CannotBind::BoundElsewhere(bound.node.clone()));
        }
        let claim = claims.iter().find(|claim| *claim.node == *node).ok_or(CannotBind::NotReserved)?.clone();
        if claim.hold == Hold::Confirmed {
            return Ok(self.describe(&claim));
        }
        if let Some(lost) = self.lost(&claim) {
            return Err(lost);
        }
        let choice = self.describe(&claim);
        self.insert(pod, Claim { hold: Hold::Binding { deadline_ns }, ..claim });
        Ok(choice)
    }

    /// The bind to this node has happened. The pod holds what was reserved there, and nothing else.
    ///
    /// False if nothing is held there any more: the pod ended before the answer to its bind was read.
    pub fn bound(&mut self, pod: &str, node: &str) -> bool {
        let Some(claim) = self.claims(pod).iter().find(|claim| *claim.node == *node).cloned() else {
            return false;
        };
        self.drop_claims(pod, |_| true);
        self.insert(pod, Claim { hold: Hold::Confirmed, ..claim });
        true
    }

    /// The bind to this node did certainly not happen.
    pub fn abandon(&mut self, pod: &str, node: &str) {
        self.drop_claims_where(pod, |claim| *claim.node == *node && claim.hold != Hold::Confirmed);
    }

    /// The pod is bound to this node with these GPUs. It holds nothing else.
    pub fn confirm(&mut self, pod: &str, node: &str, gpus: &[String], demand: &Demand) {
        let same = |claim: &Claim| {
            claim.hold == Hold::Confirmed
                && *claim.node == *node
                && claim.gpus.iter().map(|gpu| &**gpu).eq(gpus.iter().map(String::as_str))
                && *claim.demand == *demand
        };
        if matches!(self.pods.get(pod).map(Vec::as_slice), Some([only]) if same(only)) {
            return;
        }
        self.drop_claims(pod, |_| true);
        let mut gpus: Vec<Arc<str>> = gpus.iter().map(|gpu| Arc::from(gpu.as_str())).collect();
        gpus.dedup();
        let claim =
            Claim { node: self.name_of(node), gpus, demand: Arc::new(demand.clone()), hold: Hold::Confirmed };
        self.insert(pod, claim);
    }

    /// The pod has ended or is gone: it holds nothing any more. Says whether it held anything.
    pub fn release(&mut self, pod: &str) -> bool {
        self.drop_claims(pod, |_| true)
    }

    /// Gives back what nobody came for until now, and says how many pods that were.
    pub fn expire(&mut self, now_ns: u64) -> usize {
        let mut pods = BTreeSet::new();
        while let Some((deadline, _)) = self.deadlines.first()
            && *deadline <= now_ns
        {
            if let Some((_, pod)) = self.deadlines.pop_first() {
                pods.insert(pod);
            }
        }
        let is_over = |hold: Hold| hold.deadline_ns().is_some_and(|deadline| deadline <= now_ns);
        pods.iter().filter(|pod| self.drop_claims(pod, is_over)).count()
    }

    /// Drops every confirmed claim whose pod does not exist according to the caller.
    pub fn retain_confirmed(&mut self, exists: impl Fn(&str) -> bool) {
        let is_confirmed = |claims: &Vec<Claim>| claims.iter().any(|claim| claim.hold == Hold::Confirmed);
        let gone = self.pods.iter().filter(|(pod, claims)| is_confirmed(claims) && !exists(pod));
        let gone: Vec<Arc<str>> = gone.map(|(pod, _)| pod.clone()).collect();
        for pod in gone {
            self.release(&pod);
        }
    }

    /// Pods that are known to be bound.
    pub fn confirmed(&self) -> impl Iterator<Item = &Arc<str>> {
        let is_confirmed = |claims: &[Claim]| claims.iter().any(|claim| claim.hold == Hold::Confirmed);
        self.pods.iter().filter(move |(_, claims)| is_confirmed(claims)).map(|(pod, _)| pod)
    }

    /// Pods that may have ended, by the caller's word, on those of the nodes where the demand would fit if they had.
    pub fn in_the_way<'a>(
        &self,
        demand: &Demand,
        nodes: impl Iterator<Item = &'a str>,
        may_have_ended: impl Fn(&str) -> bool,
    ) -> Vec<Arc<str>> {
        let wanted = Wanted::new(demand);
        let mut found = Vec::new();
        for (name, place) in nodes.filter_map(|name| self.nodes.get_key_value(name)) {
            let (ended, others): (Vec<&Arc<str>>, Vec<&Arc<str>>) =
                place.pods.iter().partition(|pod| may_have_ended(pod));
            if ended.is_empty() {
                continue;
            }
            let claims = others.into_iter().filter_map(|pod| self.pods.get(pod)).flatten();
            let claims = claims.filter(|claim| claim.node == *name);
            let mut node = place.node.clone();
            node.rebuild(claims.map(|claim| (claim.gpus.as_slice(), &*claim.demand)));
            if node.fit(&wanted, self.strategy).is_some() {
                found.extend(ended.into_iter().cloned());
            }
        }
        found
    }

    /// What the pod holds.
    pub fn claims(&self, pod: &str) -> &[Claim] {
        self.pods.get(pod).map(Vec::as_slice).unwrap_or_default()
    }

    /// Where the pod fits on this node, or why it does not. Holds nothing.
    ///
    /// # Errors
    /// What stands against it.
    pub fn fit(&self, demand: &Demand, node: &str) -> Result<Choice, NodeReasons> {
        self.best(demand, std::iter::once(node), 1)
            .pop()
            .ok_or_else(|| self.reasons(&Wanted::new(demand), node))
    }

    /// What is given of every GPU, node by node.
    pub fn uses(&self) -> impl Iterator<Item = (&Arc<str>, Vec<GpuUse>)> {
        self.nodes.iter().map(|(name, place)| (name, place.node.uses().collect()))
    }

    /// Pods with a claim that is not confirmed, and pods with one that is.
    pub fn counts(&self) -> (usize, usize) {
        let confirmed = |claims: &Vec<Claim>| claims.iter().any(|claim| claim.hold == Hold::Confirmed);
        let bound = self.pods.values().filter(|claims| confirmed(claims)).count();
        (self.pods.len() - bound, bound)
    }

    fn best<'a>(&self, demand: &Demand, nodes: impl Iterator<Item = &'a str>, most: usize) -> Vec<Choice> {
        let wanted = Wanted::new(demand);
        let mut best: Vec<Candidate<'_>> = Vec::with_capacity(most + 1);
        for name in nodes {
            let Some((name, place)) = self.nodes.get_key_value(name) else { continue };
            let Some((rank, spot)) = place.node.fit(&wanted, self.strategy) else { continue };
            let candidate = Candidate { rank, name, node: &place.node, spot };
            // Equal ranks in the order of names: the same choice whatever order the candidates come in.
            let Err(at) = best.binary_search_by(|one| (one.rank, one.name).cmp(&(rank, name))) else {
                continue;
            };
            if at < most {
                best.insert(at, candidate);
                best.truncate(most);
            }
        }
        best.iter().map(|one| one.node.choice(one.name, demand, &one.spot)).collect()
    }

    fn held<'a>(&self, pod: &str, mut nodes: impl Iterator<Item = &'a str>) -> Option<Offer> {
        let claims = self.pods.get(pod)?;
        let bound = claims.iter().find(|claim| claim.hold == Hold::Confirmed);
        if let Some(claim) = nodes.find_map(|name| claims.iter().find(|claim| *claim.node == *name)) {
            return Some(Offer::Held(self.describe(claim)));
        }
        bound.map(|claim| Offer::HeldElsewhere(claim.clone()))
    }

    fn reasons(&self, wanted: &Wanted<'_>, node: &str) -> NodeReasons {
        self.nodes.get(node).map_or(NodeReasons::NoGpus, |place| place.node.reasons(wanted))
    }

    fn describe(&self, claim: &Claim) -> Choice {
        let place = self.nodes.get(&claim.node);
        let slots = || claim.gpus.iter().filter_map(|gpu| place.and_then(|place| place.node.slot(gpu)));
        let memory = slots().map(|slot| claim.demand.memory_on(slot.memory_bytes)).min().unwrap_or(0);
        Choice {
            node: claim.node.clone(),
            gpus: claim.gpus.clone(),
            ordinals: slots().map(|slot| slot.ordinal).collect(),
            memory_bytes: memory,
            take: claim.demand.take,
        }
    }

    /// The first GPU of a claim that must not be bound any more: sick, gone, or given to others by someone else.
    fn lost(&self, claim: &Claim) -> Option<CannotBind> {
        let place = self.nodes.get(&claim.node)?;
        let slots = claim.gpus.iter().filter_map(|gpu| place.node.slot(gpu));
        let mut lost = slots.filter_map(|slot| slot.lost().map(|why| (slot, why)));
        lost.next().map(|(slot, why)| CannotBind::Lost { gpu: slot.name(), why })
    }

    fn name_of(&self, name: &str) -> Arc<str> {
        self.nodes.get_key_value(name).map_or_else(|| Arc::from(name), |(name, _)| name.clone())
    }

    /// Puts a claim in, in the place of the one that the pod has on the same node.
    fn insert(&mut self, pod: &str, claim: Claim) {
        self.drop_claims_where(pod, |one| one.node == claim.node);
        let pod = self.pods.get_key_value(pod).map_or_else(|| Arc::from(pod), |(pod, _)| pod.clone());
        let place = self.nodes.entry(claim.node.clone()).or_default();
        place.pods.insert(pod.clone());
        place.node.add(&claim.gpus, &claim.demand);
        if let Some(deadline) = claim.hold.deadline_ns() {
            self.deadlines.insert((deadline, pod.clone()));
        }
        self.pods.entry(pod).or_default().push(claim);
    }

    fn drop_claims(&mut self, pod: &str, which: impl Fn(Hold) -> bool) -> bool {
        self.drop_claims_where(pod, |claim| which(claim.hold))
    }

    fn drop_claims_where(&mut self, pod: &str, which: impl Fn(&Claim) -> bool) -> bool {
        let Some((pod, claims)) = self.pods.get_key_value(pod) else { return false };
        if !claims.iter().any(&which) {
            return false;
        }
        let pod = pod.clone();
        let claims = self.pods.remove(&pod).unwrap_or_default();
        let (dropped, kept): (Vec<Claim>, Vec<Claim>) = claims.into_iter().partition(|claim| which(claim));
        let stays = |deadline: u64| kept.iter().any(|claim| claim.hold.deadline_ns() == Some(deadline));
        for deadline in dropped.iter().filter_map(|claim| claim.hold.deadline_ns()).filter(|one| !stays(*one))
        {
            self.deadlines.remove(&(deadline, pod.clone()));
        }
        if !kept.is_empty() {
            self.pods.insert(pod.clone(), kept);
        }
        for claim in &dropped {
            if let Some(place) = self.nodes.get_mut(&claim.node) {
                place.pods.remove(&pod);
            }
            self.recount(&claim.node);
        }
        true
    }

    /// Builds a node's sums anew from the claims on it; a node without GPUs and claims is forgotten.
    fn recount(&mut self, name: &Arc<str>) {
        let Some(place) = self.nodes.get_mut(name) else { return };
        let claims = place.pods.iter().filter_map(|pod| self.pods.get(pod));
        let claims = claims.flatten().filter(|claim| claim.node == *name);
        place.node.rebuild(claims.map(|claim| (claim.gpus.as_slice(), &*claim.demand)));
        if place.node.is_empty() && place.pods.is_empty() {
            self.nodes.remove(name);
        }
    }
}
