//! Inserting and releasing reservations.

use std::sync::Arc;

use super::Index;
use crate::outcome::Reservation;

impl Index {
    pub(super) fn name_of(&self, name: &str) -> Arc<str> {
        self.nodes.get_key_value(name).map_or_else(|| Arc::from(name), |(name, _)| name.clone())
    }

    /// Inserts a reservation in place of the pod's earlier one on the same node.
    pub(super) fn insert(&mut self, pod: &str, reservation: Reservation) {
        self.release_where(pod, |one| one.node == reservation.node);
        let pod = self.pods.get_key_value(pod).map_or_else(|| Arc::from(pod), |(pod, _)| pod.clone());
        let place = self.nodes.entry(reservation.node.clone()).or_default();
        place.pods.insert(pod.clone());
        place.node.add(&reservation.gpus, &reservation.demand);
        if let Some(deadline) = reservation.state.deadline_ns() {
            self.deadlines.insert((deadline, pod.clone()));
        }
        self.pods.entry(pod).or_default().push(reservation);
    }

    pub(super) fn release_where(&mut self, pod: &str, which: impl Fn(&Reservation) -> bool) -> bool {
        let Some((pod, reservations)) = self.pods.get_key_value(pod) else { return false };
        if !reservations.iter().any(&which) {
            return false;
        }
        let pod = pod.clone();
        let reservations = self.pods.remove(&pod).unwrap_or_default();
        let (dropped, kept): (Vec<Reservation>, Vec<Reservation>) =
            reservations.into_iter().partition(|reservation| which(reservation));
        let stays =
            |deadline: u64| kept.iter().any(|reservation| reservation.state.deadline_ns() == Some(deadline));
        for deadline in dropped
            .iter()
            .filter_map(|reservation| reservation.state.deadline_ns())
            .filter(|one| !stays(*one))
        {
            self.deadlines.remove(&(deadline, pod.clone()));
        }
        if !kept.is_empty() {
            self.pods.insert(pod.clone(), kept);
        }
        for reservation in &dropped {
            if let Some(place) = self.nodes.get_mut(&reservation.node) {
                place.pods.remove(&pod);
            }
            self.recount(&reservation.node);
        }
        true
    }

    /// Recomputes a node's sums from its reservations. A node without GPUs and reservations is removed.
    pub(super) fn recount(&mut self, name: &Arc<str>) {
        let Some(place) = self.nodes.get_mut(name) else { return };
        let reservations = place.pods.iter().filter_map(|pod| self.pods.get(pod));
        let reservations = reservations.flatten().filter(|reservation| reservation.node == *name);
        place
            .node
            .rebuild(reservations.map(|reservation| (reservation.gpus.as_slice(), &*reservation.demand)));
        if place.node.is_empty() && place.pods.is_empty() {
            self.nodes.remove(name);
        }
    }
}
