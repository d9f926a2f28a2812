//! What is decided and known, under one lock.

use std::collections::{HashMap, HashSet};

use sluice_placement::{Index, Strategy};
use tokio::time::Instant;

/// What is decided, under one lock. It is held for microseconds and never across an `await`.
pub(crate) struct PlacementState {
    pub(crate) index: Index,
    /// Pods that were bound by us and that the watch of pods has not shown as bound since its last list began: a list
    /// that does not have them may be older than their bind.
    pub(crate) unobserved_binds: HashSet<String>,
    /// The number of the latest bind of each pod whose binds have not all come to a known end.
    pub(crate) binds: HashMap<String, u64>,
    /// Bound pods that are being deleted, by UID: whose end is near.
    pub(crate) deleting: HashMap<String, DeletingPod>,
    /// Pods whose end the API server told us when we asked, before the watch has shown it. What the watch still has of
    /// them is from before that.
    pub(crate) ended_unobserved: HashSet<String>,
}

/// A bound pod that is being deleted.
#[derive(Debug, Clone)]
pub(crate) struct DeletingPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// When the API server was last asked whether it is still there.
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

    /// The pod holds nothing any more: it has ended, or is gone.
    pub(crate) fn end(&mut self, uid: &str) {
        self.unobserved_binds.remove(uid);
        self.deleting.remove(uid);
        self.index.release(uid);
    }

    /// The API server says that the pod has ended or is gone, and the watch has yet to show it.
    pub(crate) fn end_unobserved(&mut self, uid: &str) {
        self.end(uid);
        self.ended_unobserved.insert(uid.to_owned());
    }
}
