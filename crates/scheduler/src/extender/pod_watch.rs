//! Watches pods and updates the index from their assignments.

use std::collections::HashSet;

use kube::api::Api;
use kube::runtime::watcher;
use sluice_placement::ReservationState;
use sluice_placement::annotations::Assignment;

use super::extender::{DeletingPod, Extender, PlacementState};
use super::filter::demand_of;
use super::leadership::WatchedKind;
use super::objects::Pod;
use super::occupants::Occupant;
use super::watch_loop::{Sink, run_watch};

/// Watches the pods of one scheduler profile, or all.
pub(crate) async fn follow(extender: &Extender) {
    let api: Api<Pod> = Api::all(extender.client.clone());
    let config = match &extender.policy.scheduler_name {
        Some(name) => watcher::Config::default().fields(&format!("spec.schedulerName={name}")),
        None => watcher::Config::default(),
    };
    run_watch(extender, api, config, Pods::new(extender)).await;
}

/// Applies a pod as the API server returned it, as if the watch had shown it. Without a reservation of the pod, the watch has
/// shown something newer: its end.
pub(crate) fn apply_pod(extender: &Extender, pod: &Pod) {
    let Some(uid) = pod.uid() else { return };
    let mut state = extender.state();
    if state.index.reservations(uid).is_empty() {
        return;
    }
    Pods::new(extender).apply_to(&mut state, uid, pod);
    // The pod may not belong to the watched profile. Then its absence from a list does not mean that it has ended.
    if is_bound(&state, uid) {
        state.unobserved_binds.insert(uid.to_owned());
    }
    drop(state);
    extender.changed();
}

/// Updates the index from the pods that the watch shows.
pub(super) struct Pods<'a> {
    extender: &'a Extender,
    /// `None` outside a list.
    listed: Option<Listed>,
}

/// What a list contains, by UID.
#[derive(Default)]
struct Listed {
    bound: HashSet<String>,
    nominated: HashSet<String>,
}

impl<'a> Pods<'a> {
    pub(super) fn new(extender: &'a Extender) -> Self {
        Self { extender, listed: None }
    }

    fn apply_to(&mut self, state: &mut PlacementState, uid: &str, pod: &Pod) {
        if pod.has_ended() {
            state.end(uid);
            return;
        }
        if state.ended_unobserved.contains(uid) {
            return;
        }
        let Some(node) = pod.node() else {
            state.release_if_failed(uid, pod);
            // An event from before the bind contains nothing new about a pod that is known to be bound.
            if !is_bound(state, uid)
                && nominate(self.extender, state, uid, pod)
                && let Some(listed) = &mut self.listed
            {
                listed.nominated.insert(uid.to_owned());
            }
            return;
        };
        state.unobserved_binds.remove(uid);
        state.attempts.remove(uid);
        state.refusals.remove(uid);
        match assignment(pod) {
            Some(Assignment { gpus, demand, .. }) => {
                if let Some(listed) = &mut self.listed {
                    listed.bound.insert(uid.to_owned());
                }
                state.index.confirm(uid, node, &gpus, &demand);
                state.occupants.insert(uid.to_owned(), Occupant::new(pod));
                if pod.is_being_deleted() {
                    let (namespace, name) = pod.path();
                    let ending =
                        || DeletingPod { namespace: namespace.into(), name: name.into(), checked_at: None };
                    state.deleting.entry(uid.to_owned()).or_insert_with(ending);
                }
            }
            // Bound by another scheduler, without a GPU.
            None => {
                state.end(uid);
            }
        }
    }
}

impl Sink for Pods<'_> {
    type Object = Pod;
    const KIND: WatchedKind = WatchedKind::Pods;

    fn begin(&mut self) {
        self.listed = Some(Listed::default());
        // The coming list contains every pod that was bound until now, unless it has ended. It does not contain the
        // pods found gone.
        let mut state = self.extender.state();
        state.unobserved_binds.clear();
        state.ended_unobserved.clear();
        // Filter may have refused pods after their end. A waiting pod is refused once more before it evicts others.
        state.refused.clear();
    }

    fn apply(&mut self, pod: &Pod) {
        if let Some(uid) = pod.uid() {
            self.apply_to(&mut self.extender.state(), uid, pod);
        }
    }

    fn delete(&mut self, pod: &Pod) {
        if let Some(uid) = pod.uid() {
            let mut state = self.extender.state();
            state.end(uid);
            state.ended_unobserved.remove(uid);
        }
    }

    fn complete(&mut self) {
        let Some(Listed { bound, nominated }) = self.listed.take() else { return };
        let mut state = self.extender.state();
        let state = &mut *state;
        state.index.retain_confirmed(|uid| bound.contains(uid) || state.unobserved_binds.contains(uid));
        state.deleting.retain(|uid, _| bound.contains(uid));
        state.occupants.retain(|uid, _| bound.contains(uid));
        state.attempts.retain(|uid, _| !state.index.reservations(uid).is_empty());
        state.index.retain_nominated(|uid| nominated.contains(uid), room_deadline_ns(self.extender));
    }
}

fn is_bound(state: &PlacementState, uid: &str) -> bool {
    state.index.reservations(uid).iter().any(|one| one.state == ReservationState::Confirmed)
}

/// Keeps room for a waiting pod on the node that kube-scheduler has nominated. Returns whether there is one.
fn nominate(extender: &Extender, state: &mut PlacementState, uid: &str, pod: &Pod) -> bool {
    if let (Some(node), Ok(demand)) = (pod.nominated_node(), demand_of(pod)) {
        state.index.nominate(uid, node, &demand);
        return true;
    }
    let is_waiting = !pod.is_being_deleted();
    let deadline_ns = if is_waiting { room_deadline_ns(extender) } else { extender.clock.now_ns() };
    state.index.withdraw_nomination(uid, deadline_ns);
    false
}

/// Until when a pod keeps the room of its victims after its nomination was cleared.
fn room_deadline_ns(extender: &Extender) -> u64 {
    extender.clock.in_ns(extender.policy.reservation)
}

/// What a bound pod was assigned.
fn assignment(pod: &Pod) -> Option<Assignment> {
    let namespace = pod.path().0;
    let assignment =
        Assignment::of_pod(namespace, pod.annotations()?, pod.spec().demand()).unwrap_or_else(|mistake| {
            tracing::warn!(pod = pod.title(), %mistake, "ignored an assignment that cannot be read");
            None
        })?;
    if let Some(why) = &assignment.unreadable {
        let pod = pod.title();
        tracing::warn!(pod, %why, "has GPUs but no readable request: they count as completely used");
    }
    Some(assignment)
}
