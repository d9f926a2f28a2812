//! Room that is kept for pods whose victims are ending. kube-scheduler calls such a pod nominated
//! (`status.nominatedNodeName`), and counts it on its node when it places pods of the same or a lower priority.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Index, NodeEntry};
use crate::demand::{Demand, PreparedDemand};
use crate::node::Node;

/// The room of one pod on one node.
#[derive(Debug, Clone)]
pub(super) struct Nomination {
    /// UUIDs of its GPUs. Empty until they are known: another replica chose the victims.
    gpus: Vec<Arc<str>>,
    /// Pods that have to end first, as far as they are known.
    victims: Vec<Arc<str>>,
    demand: Arc<Demand>,
    /// When the room ends of a proposal that kube-scheduler did not accept, or of a nomination that it cleared. `None`: the pod
    /// is nominated.
    deadline_ns: Option<u64>,
    /// Until when the pod waits for its node, since kube-scheduler did not propose the node.
    waits_until_ns: Option<u64>,
}

/// A node that was proposed to kube-scheduler, with the pods to evict there and the GPUs that become free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedNode {
    /// The node.
    pub node: Arc<str>,
    /// UUIDs of the GPUs.
    pub gpus: Vec<Arc<str>>,
    /// UIDs of the pods that have to end first.
    pub victims: Vec<Arc<str>>,
}

impl Index {
    /// Keeps room for the pod on each of these nodes, until kube-scheduler has chosen one or the deadline passes.
    /// Replaces what was proposed for the pod before.
    pub fn propose_nominations(
        &mut self,
        pod: &str,
        demand: &Demand,
        nodes: Vec<ProposedNode>,
        deadline_ns: u64,
    ) {
        self.remove_nominations(pod, |one| one.deadline_ns.is_some());
        let demand = Arc::new(demand.clone());
        for ProposedNode { node, gpus, victims } in nodes {
            let pods = self.nominations.entry(node).or_default();
            let is_nominated = pods.contains_key(pod);
            let deadline_ns = (!is_nominated).then_some(deadline_ns);
            let demand = demand.clone();
            pods.insert(
                Arc::from(pod),
                Nomination { gpus, victims, demand, deadline_ns, waits_until_ns: None },
            );
        }
    }

    /// The pod is nominated to this node: its proposals on other nodes end.
    pub fn nominate(&mut self, pod: &str, node: &str, demand: &Demand) {
        let name = self.name_of(node);
        let known = self.nominations.get_mut(&name).and_then(|pods| pods.get_mut(pod));
        let nomination = match known {
            // A repetition says nothing about a later proposal.
            Some(known) if known.deadline_ns.is_none() => return,
            Some(known) => Nomination { deadline_ns: None, ..known.clone() },
            None => Nomination {
                gpus: Vec::new(),
                victims: Vec::new(),
                demand: Arc::new(demand.clone()),
                deadline_ns: None,
                waits_until_ns: None,
            },
        };
        self.remove_nominations(pod, |_| true);
        self.nominations.entry(name).or_default().insert(Arc::from(pod), nomination);
    }

    /// The pod is not nominated (any more). Its room stays until the deadline if victims of its nomination are still bound: they
    /// end, and a nomination that kube-scheduler clears before says nothing about the room. The pod's proposals stay too:
    /// they may be later than what the caller has read.
    pub fn withdraw_nomination(&mut self, pod: &str, deadline_ns: u64) {
        self.end_nominations(|other| other == pod, deadline_ns);
    }

    /// Withdraws every nomination whose pod is not nominated according to the caller.
    pub fn retain_nominated(&mut self, is_nominated: impl Fn(&str) -> bool, deadline_ns: u64) {
        self.end_nominations(|pod| !is_nominated(pod), deadline_ns);
    }

    fn end_nominations(&mut self, of: impl Fn(&str) -> bool, deadline_ns: u64) {
        let bound = &self.pods;
        self.nominations.retain(|_, pods| {
            pods.retain(|pod, one| {
                let ends = one.deadline_ns.is_none() && of(pod);
                let awaits_victims = one.victims.iter().any(|victim| bound.contains_key(victim));
                if ends && awaits_victims {
                    one.deadline_ns = Some(deadline_ns);
                }
                !ends || awaits_victims
            });
            !pods.is_empty()
        });
    }

    /// Chooses GPUs for nominated pods that have none yet, as if the pods that are ending had ended.
    pub fn place_nominated(&mut self, is_ending: impl Fn(&str) -> bool) {
        let is_unplaced = |(_, one): &(&Arc<str>, &Nomination)| one.gpus.is_empty();
        let unplaced = self.nominations.iter().flat_map(|(name, pods)| {
            pods.iter()
                .filter(is_unplaced)
                .map(move |(pod, one)| (name.clone(), pod.clone(), one.demand.clone()))
        });
        // One after the other, so that two pods do not get the same room.
        for (name, pod, demand) in unplaced.collect::<Vec<_>>() {
            let Some(place) = self.nodes.get(&name) else { continue };
            let node = Cow::Owned(self.node_without(&name, place, &is_ending));
            let node = self.with_nominated(&name, place, &pod, demand.pod_priority, node);
            let Some((_, positions)) = node.fit(&PreparedDemand::new(&demand), self.strategy) else {
                continue;
            };
            let gpus = node.uuids(&positions);
            if let Some(one) = self.nominations.get_mut(&name).and_then(|pods| pods.get_mut(&pod)) {
                one.gpus = gpus;
            }
        }
    }

    /// Whether pods on the node have to end before the pod fits there: pods that are ending, or its victims.
    pub fn awaits_victims(
        &self,
        pod: &str,
        node: &str,
        demand: &Demand,
        is_ending: impl Fn(&str) -> bool,
    ) -> bool {
        let nomination = self.nominations.get(node).and_then(|pods| pods.get(pod));
        let victims = nomination.map(|one| one.victims.as_slice()).unwrap_or_default();
        victims.iter().any(|victim| self.pods.contains_key(victim))
            || !self.possibly_ended_pods(demand, std::iter::once(node), is_ending).is_empty()
    }

    /// The node that the pod is nominated to.
    pub fn nominated_node(&self, pod: &str) -> Option<&Arc<str>> {
        let is_nominated = |one: &Nomination| one.deadline_ns.is_none();
        self.nominations
            .iter()
            .find(|(_, pods)| pods.get(pod).is_some_and(is_nominated))
            .map(|(node, _)| node)
    }

    /// Whether nodes were proposed for the pod, of which kube-scheduler is choosing one.
    pub fn has_proposals(&self, pod: &str) -> bool {
        self.nominations.values().any(|pods| pods.get(pod).is_some_and(|one| one.deadline_ns.is_some()))
    }

    /// Whether the pod fits on the node now.
    pub fn has_room(&self, pod: &str, node: &str, demand: &Demand) -> bool {
        !self.best(pod, demand, std::iter::once(node), 1).is_empty()
    }

    /// Whether the pod still waits for its nominated node, which cannot take it now for a reason other than GPUs. The first
    /// call determines until when.
    pub fn waits_for_node(&mut self, pod: &str, node: &str, now_ns: u64, until_ns: u64) -> bool {
        let nomination = self.nominations.get_mut(node).and_then(|pods| pods.get_mut(pod));
        nomination.is_some_and(|one| *one.waits_until_ns.get_or_insert(until_ns) > now_ns)
    }

    /// On the node the pod may take the room of nominated pods below this priority. If it is nominated itself, it may do so on
    /// its own node, where its room was chosen beside pods of its priority, and on no other: its own victims and those of the
    /// other pod would both have been evicted for one of them.
    pub(super) fn displaced_below(&self, pod: &str, demand: &Demand, node: &str) -> i32 {
        let nominated_to = |pods: &BTreeMap<Arc<str>, Nomination>| pods.contains_key(pod);
        let is_nominated_here = self.nominations.get(node).is_some_and(nominated_to);
        let is_nominated_elsewhere = !is_nominated_here && self.nominations.values().any(nominated_to);
        if is_nominated_elsewhere { i32::MIN } else { demand.pod_priority }
    }

    /// The node as a pod of this priority may use it: without the room of nominated pods that precede it.
    pub(super) fn without_nominated_room<'a>(
        &self,
        name: &str,
        place: &'a NodeEntry,
        pod: &str,
        priority: i32,
    ) -> Cow<'a, Node> {
        self.with_nominated(name, place, pod, priority, Cow::Borrowed(&place.node))
    }

    /// Adds to the node the nominated pods of this or a higher priority, except `pod`. A pod that is reserved or bound
    /// there is counted already.
    pub(crate) fn with_nominated<'a>(
        &self,
        name: &str,
        place: &NodeEntry,
        pod: &str,
        priority: i32,
        mut node: Cow<'a, Node>,
    ) -> Cow<'a, Node> {
        for (other, one) in self.nominations.get(name).into_iter().flatten() {
            let precedes = one.demand.pod_priority >= priority && **other != *pod;
            if precedes && !one.gpus.is_empty() && !place.pods.contains(other) {
                node.to_mut().add(&one.gpus, &one.demand);
            }
        }
        node
    }

    pub(super) fn expire_nominations(&mut self, now_ns: u64) {
        self.retain_nominations(|_, one| one.deadline_ns.is_none_or(|deadline| deadline > now_ns));
    }

    pub(super) fn remove_nominations(&mut self, pod: &str, which: impl Fn(&Nomination) -> bool) {
        self.retain_nominations(|other, one| *other != *pod || !which(one));
    }

    fn retain_nominations(&mut self, stays: impl Fn(&str, &Nomination) -> bool) {
        self.nominations.retain(|_, pods| {
            pods.retain(|pod, one| stays(pod, one));
            !pods.is_empty()
        });
    }
}
