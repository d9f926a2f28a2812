//! Filter and prioritize: where does the pod go?
//!
//! Filter decides, and holds what it offers. By default it offers the one best node, so that the scheduler has nothing
//! left to score. A pod with wishes of its own among nodes gets several, all held until one is bound.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_placement::annotations::GpuRequest;
use sluice_placement::{Demand, NodeReasons, Offer};

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::extender::Extender;
use super::leadership::LeadershipState;
use super::metrics::Outcome;
use super::wire::{ExtenderArgs, ExtenderFilterResult, HostPriority, NodeName, Pod};

/// Up to so many nodes are refused GPU by GPU. With more, nodes that lack the same have the same words, for the
/// scheduler's message to the user counts equal ones and lists the others.
const DETAILED_NODES: usize = 4;

/// How far our watch may be behind the scheduler's for a pod's end to be seen in time.
const LAG: Duration = Duration::from_millis(25);

/// The highest score of an extender.
const MAX_SCORE: i64 = 10;

impl Extender {
    /// Answers filter.
    pub(crate) async fn filter(&self, args: &ExtenderArgs<'_>) -> (ExtenderFilterResult, Outcome) {
        match self.leadership.wait_until_active(self.policy.activation_timeout).await {
            LeadershipState::Active => self.decide(args).await,
            LeadershipState::Syncing => {
                (failure("Sluice's extender is still reading the state of the cluster"), Outcome::Inactive)
            }
            LeadershipState::Standby => (
                failure("Sluice's extender is on standby: its kube-scheduler does not hold the lease"),
                Outcome::Inactive,
            ),
        }
    }

    async fn decide(&self, args: &ExtenderArgs<'_>) -> (ExtenderFilterResult, Outcome) {
        let Some(names) = &args.node_names else {
            return (failure("the extender's configuration lacks `nodeCacheCapable: true`"), Outcome::Error);
        };
        let demand = match demand_of(&args.pod) {
            Ok(demand) => demand,
            Err(mistake) => return (refuse_all(names, &mistake), Outcome::Invalid),
        };
        match self.place_patiently(&args.pod, &demand, names).await {
            Offer::Reserved(choices) => {
                (nodes(choices.iter().map(|choice| &*choice.node)), Outcome::Reserved)
            }
            Offer::Held(choice) => (nodes(std::iter::once(&*choice.node)), Outcome::Reserved),
            Offer::HeldElsewhere(claim) => {
                (failure(&format!("the pod is bound to {} already", claim.node)), Outcome::Error)
            }
            Offer::Refused(reasons) => (refused(&reasons), Outcome::Refused),
        }
    }

    /// Places a pod, and before it refuses one makes sure that those which stand in its way are still there.
    ///
    /// The scheduler asks about a waiting pod again as soon as its own watch shows that another has ended. Ours may show
    /// it a little later, and what is refused then is asked about again only at the next event, which can take minutes.
    async fn place_patiently(&self, pod: &Pod, demand: &Demand, names: &[NodeName<'_>]) -> Offer {
        let asked = Instant::now();
        let mut changes = self.changes();
        let mut offer = self.place(pod, demand, names);
        if !could_change(&offer) {
            return offer;
        }
        self.recheck_deleting(asked, demand, names.iter().map(|name| &*name.0)).await;
        if is_news(&mut changes) {
            offer = self.place(pod, demand, names);
        }
        if !could_change(&offer) {
            return offer;
        }
        self.recheck_all(asked).await;
        if is_news(&mut changes) {
            offer = self.place(pod, demand, names);
        }
        if !could_change(&offer) || !self.may_wait() {
            return offer;
        }
        let end = Instant::now() + LAG;
        while could_change(&offer) && matches!(timeout_at(end, changes.changed()).await, Ok(Ok(()))) {
            offer = self.place(pod, demand, names);
        }
        offer
    }

    fn place(&self, pod: &Pod, demand: &Demand, names: &[NodeName<'_>]) -> Offer {
        let most =
            if self.policy.always_score || pod.has_soft_preferences() { self.policy.candidates } else { 1 };
        let deadline = self.clock.in_ns(self.policy.reservation);
        let names = names.iter().map(|name| &*name.0);
        self.expire();
        self.state().index.reserve(&pod.metadata.uid, demand, names, most, deadline)
    }

    /// Answers prioritize: the order in which filter offered the nodes, as scores.
    pub(crate) fn prioritize(&self, args: &ExtenderArgs<'_>) -> Vec<HostPriority> {
        let state = self.state();
        let claims = state.index.claims(&args.pod.metadata.uid);
        let score = |name: &str| {
            let ranked = claims.iter().zip((1..=MAX_SCORE).rev().chain(std::iter::repeat(1)));
            ranked.into_iter().find(|(claim, _)| *claim.node == *name).map_or(0, |(_, score)| score)
        };
        let names = args.node_names.iter().flatten().map(|name| &*name.0);
        names.map(|name| HostPriority { host: name.to_owned(), score: score(name) }).collect()
    }
}

/// Has something changed since this was last asked?
fn is_news(changes: &mut watch::Receiver<u64>) -> bool {
    let is_news = matches!(changes.has_changed(), Ok(true));
    changes.mark_unchanged();
    is_news
}

/// Refused for want of what other pods hold.
fn could_change(offer: &Offer) -> bool {
    matches!(offer, Offer::Refused(reasons) if reasons.iter().any(|(_, reasons)| reasons.is_resolvable()))
}

/// What the pod asks for, or what is wrong with that in words.
pub(crate) fn demand_of(pod: &Pod) -> Result<Demand, String> {
    let none = BTreeMap::new();
    if pod.metadata.uid.is_empty() {
        return Err("the pod has no UID".to_owned());
    }
    match GpuRequest::from_annotations(pod.metadata.annotations.as_ref().unwrap_or(&none)) {
        Ok(Some(request)) => Ok(Demand::from(&request)),
        Ok(None) => {
            Err("the pod asks for sluice.dev/gpu but has none of the annotations that say how much of one: \
                         sluice.dev/quota, sluice.dev/memory"
                .to_owned())
        }
        Err(mistakes) => Err(mistakes.to_string()),
    }
}

fn failure(error: &str) -> ExtenderFilterResult {
    ExtenderFilterResult { error: error.to_owned(), ..ExtenderFilterResult::default() }
}

fn nodes<'a>(names: impl Iterator<Item = &'a str>) -> ExtenderFilterResult {
    ExtenderFilterResult {
        node_names: Some(names.map(str::to_owned).collect()),
        ..ExtenderFilterResult::default()
    }
}

fn refuse_all(names: &[NodeName<'_>], why: &str) -> ExtenderFilterResult {
    let failed = names.iter().map(|name| (name.0.to_string(), why.to_owned())).collect();
    ExtenderFilterResult {
        node_names: Some(Vec::new()),
        failed_and_unresolvable_nodes: failed,
        ..ExtenderFilterResult::default()
    }
}

/// Nodes and why they do not do.
///
/// All count as beyond what preemption could change as long as we serve no preempt verb: the scheduler alone would find
/// no victim that helps (it does not know whose share is whose) and nominate a node without any, on which it then
/// keeps room that the pod cannot use. With the verb, `NodeReasons::is_resolvable` tells the two kinds apart.
fn refused(reasons: &[(Arc<str>, NodeReasons)]) -> ExtenderFilterResult {
    let is_short = reasons.len() <= DETAILED_NODES;
    let words = |reason: &NodeReasons| if is_short { reason.to_string() } else { reason.summary() };
    let failed = reasons.iter().map(|(name, reason)| (name.to_string(), words(reason))).collect();
    ExtenderFilterResult {
        node_names: Some(Vec::new()),
        failed_and_unresolvable_nodes: failed,
        ..ExtenderFilterResult::default()
    }
}
