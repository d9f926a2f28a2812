//! The decisions and what is known of pods, under one lock.

use std::collections::{HashMap, HashSet};

use sluice_placement::{Index, Strategy};
use tokio::time::Instant;

/// The decisions and what is known of pods. The lock is held for microseconds, and never across an `await`.
pub(crate) struct PlacementState {
    pub(crate) index: Index,
    /// Pods that this replica bound and that the watch has not shown as bound since its last list began. A list
    /// without them may be older than their bind.
    pub(crate) unobserved_binds: HashSet<String>,
    /// The number of the latest bind of each pod that has a bind with an unknown result.
    pub(crate) binds: HashMap<String, u64>,
    /// Bound pods that are being deleted, by UID.
    pub(crate) deleting: HashMap<String, DeletingPod>,
    /// Pods whose end the API server reported on request, before the watch showed it. Events of these pods in the
    /// watch are older.
    pub(crate) ended_unobserved: HashSet<String>,
}

/// A bound pod that is being deleted.
#[derive(Debug, Clone)]
pub(crate) struct DeletingPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// When the API server was last asked whether it still exists.
    pub(crate) checked_at: Option<Instant>,
}

impl PlacementState {
    pub(crate) fn new(strategy: Strategy) -> Self {
        Self {
            index: Index::new(strategy),
            unobserved_binds: HashSet::new(),
            binds: HashMap::new(),
            deleting: HashMap::new(),
            ended_unobserved: HashSet::new(),
        }
    }

    /// Releases what the pod holds: it has ended, or is gone.
    pub(crate) fn end(&mut self, uid: &str) {
        self.unobserved_binds.remove(uid);
        self.deleting.remove(uid);
        self.index.release(uid);
    }

    /// Releases what the pod holds: the API server reports its end, and the watch has not shown it yet.
    pub(crate) fn end_unobserved(&mut self, uid: &str) {
        self.end(uid);
        self.ended_unobserved.insert(uid.to_owned());
    }
}
