//! Filter and prioritize: choose a node and GPUs for a pod.
//!
//! Filter decides, and reserves what it offers. By default it offers only the best node, so that the kube-scheduler
//! has nothing to score. A pod with soft preferences among nodes gets several nodes; all stay reserved until the pod
//! is bound.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use sluice_placement::{Demand, NodeReasons, PlacementOutcome};

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::extender::Extender;
use super::leadership::LeadershipState;
use super::metrics::Outcome;
use super::objects::Pod;
use super::wire::{ExtenderArgs, ExtenderFilterResult, HostPriority, NodeName};

/// Up to this many refused nodes have a reason per GPU. With more, nodes that lack the same get the same text, because
/// the kube-scheduler's message counts equal texts and lists the others.
const DETAILED_NODES: usize = 4;

/// How far the extender's watch may lag behind the kube-scheduler's watch without a needless refusal.
const LAG: Duration = Duration::from_millis(25);

/// The highest score of an extender.
const MAX_SCORE: i64 = 10;

impl Extender {
    pub(crate) async fn filter(self: &Arc<Self>, args: &ExtenderArgs<'_>) -> (ExtenderFilterResult, Outcome) {
        match self.leadership.wait_until_active(self.policy.activation_timeout).await {
            LeadershipState::Active => self.decide(args).await,
            LeadershipState::Syncing => (
                inactive(args, "Sluice's extender is still reading the state of the cluster"),
                Outcome::Inactive,
            ),
            LeadershipState::Standby => (
                inactive(args, "Sluice's extender is on standby: its kube-scheduler does not hold the lease"),
                Outcome::Inactive,
            ),
        }
    }

    async fn decide(self: &Arc<Self>, args: &ExtenderArgs<'_>) -> (ExtenderFilterResult, Outcome) {
        let Some(names) = &args.node_names else {
            return (failure("the extender's configuration lacks `nodeCacheCapable: true`"), Outcome::Error);
        };
        let demand = match demand_of(&args.pod) {
            Ok(demand) => demand,
            Err(mistake) => return (refuse_all(names, &mistake), Outcome::Invalid),
        };
        match self.place_with_recheck(&args.pod, &demand, names).await {
            PlacementOutcome::Reserved(choices) => {
                (nodes(choices.iter().map(|choice| &*choice.node)), Outcome::Reserved)
            }
            PlacementOutcome::Bound(choice) => (nodes(std::iter::once(&*choice.node)), Outcome::Reserved),
            PlacementOutcome::ReservedElsewhere(claim) => {
                (failure(&format!("the pod is already bound to {}", claim.node)), Outcome::Error)
            }
            PlacementOutcome::Refused(reasons) => {
                // Only such a pod gets a scale-up pod: a new node has no GPU of a known UUID, and its GPUs are not larger.
                if demand.uuids.is_empty() && is_resolvable(&reasons) {
                    let uid = args.pod.uid().unwrap_or_default();
                    self.state().refusals.record(uid, args.pod.path(), self.clock.now_ns());
                }
                self.evict_for_refused(&args.pod, &demand, names.iter().map(|name| &*name.0));
                (self.refused(&args.pod, &demand, &reasons), Outcome::Refused)
            }
        }
    }

    /// Places a pod. Before it refuses one, it verifies that the pods which hold the needed GPUs still exist.
    ///
    /// The kube-scheduler asks about a waiting pod again as soon as its own watch shows that another pod has ended.
    /// The extender's watch may show this a little later. A pod that is refused then is asked about only at the next
    /// event, which can take minutes.
    async fn place_with_recheck(
        &self,
        pod: &Pod,
        demand: &Demand,
        names: &[NodeName<'_>],
    ) -> PlacementOutcome {
        let asked = Instant::now();
        let mut changes = self.changes();
        let mut offer = self.place(pod, demand, names);
        if !may_become_free(&offer) {
            return offer;
        }
        self.recheck_deleting(asked, demand, names.iter().map(|name| &*name.0)).await;
        if has_changed(&mut changes) {
            offer = self.place(pod, demand, names);
        }
        if !may_become_free(&offer) {
            return offer;
        }
        self.recheck_all(asked).await;
        if has_changed(&mut changes) {
            offer = self.place(pod, demand, names);
        }
        if !may_become_free(&offer) || !self.may_wait() {
            return offer;
        }
        let end = Instant::now() + LAG;
        while may_become_free(&offer) && matches!(timeout_at(end, changes.changed()).await, Ok(Ok(()))) {
            offer = self.place(pod, demand, names);
        }
        offer
    }

    /// The answer for nodes that cannot take the pod.
    ///
    /// All nodes of a filter call have passed the scheduler's own filters with all their pods. The scheduler's search for
    /// victims would find none there: it knows no single GPU. So preemption cannot help, except on the node that is
    /// nominated for the pod while its victims are ending. There the scheduler waits for them and evicts no others.
    fn refused(
        &self,
        pod: &Pod,
        demand: &Demand,
        reasons: &[(Arc<str>, NodeReasons)],
    ) -> ExtenderFilterResult {
        let is_short = reasons.len() <= DETAILED_NODES;
        let text = |reason: &NodeReasons| if is_short { reason.to_string() } else { reason.summary() };
        let failed = reasons.iter().map(|(name, reason)| (name.to_string(), text(reason)));
        let waits =
            |node: &str| pod.nominated_node() == Some(node) && self.state().awaits_victims(pod, node, demand);
        let (failed_nodes, failed_and_unresolvable_nodes) = failed.partition(|(node, _)| waits(node));
        ExtenderFilterResult { failed_nodes, failed_and_unresolvable_nodes, ..nodes(iter::empty()) }
    }

    fn place(&self, pod: &Pod, demand: &Demand, names: &[NodeName<'_>]) -> PlacementOutcome {
        let most = if self.policy.always_score || pod.spec().has_soft_preferences() {
            self.policy.candidates
        } else {
            1
        };
        let deadline = self.clock.in_ns(self.policy.reservation);
        let names = names.iter().map(|name| &*name.0);
        self.expire();
        let mut state = self.state();
        state.place_nominated();
        let answer = state.index.reserve(pod.uid().unwrap_or_default(), demand, names, most, deadline);
        state.record_attempt(pod, demand, &answer);
        answer
    }

    /// Answers prioritize: filter's order of the nodes, as scores.
    pub(crate) fn prioritize(&self, args: &ExtenderArgs<'_>) -> Vec<HostPriority> {
        let state = self.state();
        let claims = state.index.reservations(args.pod.uid().unwrap_or_default());
        let score = |name: &str| {
            let ranked = claims.iter().zip((1..=MAX_SCORE).rev().chain(std::iter::repeat(1)));
            ranked.into_iter().find(|(claim, _)| *claim.node == *name).map_or(0, |(_, score)| score)
        };
        let names = args.node_names.iter().flatten().map(|name| &*name.0);
        names.map(|name| HostPriority { host: name.to_owned(), score: score(name) }).collect()
    }
}

/// Whether anything has changed since the last call.
fn has_changed(changes: &mut watch::Receiver<u64>) -> bool {
    let has_changed = matches!(changes.has_changed(), Ok(true));
    changes.mark_unchanged();
    has_changed
}

/// Whether the pod was refused for lack of what other pods hold.
fn may_become_free(offer: &PlacementOutcome) -> bool {
    matches!(offer, PlacementOutcome::Refused(reasons) if is_resolvable(reasons))
}

/// Whether the pod fits on a node without other pods.
fn is_resolvable(reasons: &[(Arc<str>, NodeReasons)]) -> bool {
    reasons.iter().any(|(_, reasons)| reasons.is_resolvable())
}

/// The pod's demand, or a text that says what is wrong with its request.
pub(crate) fn demand_of(pod: &Pod) -> Result<Demand, String> {
    if pod.uid().is_none_or(str::is_empty) {
        return Err("the pod has no UID".to_owned());
    }
    let none = BTreeMap::new();
    let annotations = pod.annotations().unwrap_or(&none);
    Demand::of_pod(pod.path().0, annotations, pod.spec().demand()).map_err(|why| why.to_string())
}

fn failure(error: &str) -> ExtenderFilterResult {
    ExtenderFilterResult { error: error.to_owned(), ..ExtenderFilterResult::default() }
}

/// The answer of a replica that does not decide.
///
/// kube-scheduler clears the nomination of a pod after an error (`newFailureNominatingInfo`, read in 1.34.4). Other pods would
/// then get the room of its victims. So a nominated pod is refused by a reason that kube-scheduler waits for.
fn inactive(args: &ExtenderArgs<'_>, why: &str) -> ExtenderFilterResult {
    if args.pod.nominated_node().is_none() {
        return failure(why);
    }
    let names = args.node_names.iter().flatten();
    let failed_nodes = names.map(|name| (name.0.to_string(), why.to_owned())).collect();
    ExtenderFilterResult { failed_nodes, ..nodes(iter::empty()) }
}

fn nodes<'a>(names: impl Iterator<Item = &'a str>) -> ExtenderFilterResult {
    ExtenderFilterResult {
        node_names: Some(names.map(str::to_owned).collect()),
        ..ExtenderFilterResult::default()
    }
}

fn refuse_all(names: &[NodeName<'_>], why: &str) -> ExtenderFilterResult {
    let failed = names.iter().map(|name| (name.0.to_string(), why.to_owned())).collect();
    ExtenderFilterResult { failed_and_unresolvable_nodes: failed, ..nodes(iter::empty()) }
}
