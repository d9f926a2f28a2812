//! Scheduling attempts: what follows when filter has offered nodes for a pod.
//!
//! kube-scheduler does not tell an extender that an attempt failed after filter (at Reserve, at Permit, before the bind), nor that the pod
//! waits at Permit. It writes a failure to the pod's condition `PodScheduled`, unless the condition says the same already
//! (`handleSchedulingFailure` and `updatePod`, read in 1.34.4). So the failure of an attempt releases its reservation. A reservation whose
//! failure nothing shows expires. If the pod waited at Permit instead, the bind makes the reservation again.

use std::iter;
use std::sync::Arc;

use sluice_placement::{Demand, Placement, PlacementOutcome, ReservationState};

use super::extender::PlacementState;
use super::objects::{Pod, PodCondition};

/// The latest attempt for a pod that is not bound.
#[derive(Debug)]
pub(crate) struct SchedulingAttempt {
    demand: Demand,
    /// The nodes that filter offered.
    nodes: Vec<Arc<str>>,
    /// The version of the pod that kube-scheduler sent with the filter call.
    version: Option<u64>,
    /// The failure of an earlier attempt, as that version or a later one shows it.
    known_failure: Option<PodCondition>,
}

impl SchedulingAttempt {
    fn new(pod: &Pod, demand: &Demand, offered: &[Placement]) -> Self {
        Self {
            demand: demand.clone(),
            nodes: offered.iter().map(|placement| placement.node.clone()).collect(),
            version: pod.version(),
            known_failure: pod.scheduling_failure().cloned(),
        }
    }

    /// Whether this version of the pod shows a failure that was not known.
    ///
    /// The watch may be behind kube-scheduler, so an older version shows earlier attempts.
    fn has_failed(&mut self, pod: &Pod) -> bool {
        let is_older = matches!((pod.version(), self.version), (Some(shown), Some(asked)) if shown <= asked);
        let failure = pod.scheduling_failure();
        if is_older || failure.is_none() || failure == self.known_failure.as_ref() {
            return false;
        }
        self.known_failure = failure.cloned();
        true
    }
}

impl PlacementState {
    /// Records filter's answer.
    pub(super) fn record_attempt(&mut self, pod: &Pod, demand: &Demand, answer: &PlacementOutcome) {
        let uid = pod.uid().unwrap_or_default();
        match answer {
            PlacementOutcome::Reserved(offered) => {
                self.refusals.remove(uid);
                self.attempts.insert(uid.to_owned(), SchedulingAttempt::new(pod, demand, offered));
            }
            PlacementOutcome::Refused(_) => {
                self.attempts.remove(uid);
            }
            PlacementOutcome::Bound(_) | PlacementOutcome::ReservedElsewhere(_) => {}
        }
    }

    /// Releases the reservations of a failed attempt. Reservations of a bind that is being sent stay: it may succeed.
    ///
    /// kube-scheduler may begin the next attempt before its own watch shows the failure. The failure then seems to be that of the next
    /// attempt, whose bind makes the reservation again.
    pub(super) fn release_if_failed(&mut self, uid: &str, pod: &Pod) {
        if !self.attempts.get_mut(uid).is_some_and(|attempt| attempt.has_failed(pod)) {
            return;
        }
        let reservations = self.index.reservations(uid).iter();
        let reserved = reservations.filter(|one| matches!(one.state, ReservationState::Reserved { .. }));
        for node in reserved.map(|one| one.node.clone()).collect::<Vec<_>>() {
            self.index.abandon(uid, &node);
        }
    }

    /// Makes the reservation again that filter made on this node. Returns whether there is room.
    pub(super) fn reserve_again(&mut self, uid: &str, node: &str, deadline_ns: u64) -> bool {
        let Some(attempt) = self.attempts.get(uid) else { return false };
        if !attempt.nodes.iter().any(|offered| **offered == *node) {
            return false;
        }
        let demand = attempt.demand.clone();
        self.place_nominated();
        let outcome = self.index.reserve(uid, &demand, iter::once(node), 1, deadline_ns);
        matches!(outcome, PlacementOutcome::Reserved(_))
    }
}
