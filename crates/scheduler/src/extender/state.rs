//! What is decided and known, under one lock.

use std::collections::{HashMap, HashSet};

use sluice_placement::{Index, Strategy};
use tokio::time::Instant;

/// What is decided, under one lock. It is held for microseconds and never across an `await`.
pub(crate) struct State {
    pub(crate) index: Index,
    /// Pods that were bound by us and that the watch of pods has not shown as bound since its last list began: a list
    /// that does not have them may be older than their bind.
    pub(crate) unseen: HashSet<String>,
    /// The number of the latest bind of each pod whose binds have not all come to a known end.
    pub(crate) binds: HashMap<String, u64>,
    /// Bound pods that are being deleted, by UID: whose end is near.
    pub(crate) ending: HashMap<String, Ending>,
    /// Pods whose end the API server told us when we asked, before the watch has shown it. What the watch still has of
    /// them is from before that.
    pub(crate) gone: HashSet<String>,
}

/// A bound pod that is being deleted.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// When the API server was last asked whether it is still there.
    pub(crate) looked: Option<Instant>,
}

impl State {
    pub(crate) fn new(strategy: Strategy) -> Self {
        Self {
            index: Index::new(strategy),
            unseen: HashSet::new(),
            binds: HashMap::new(),
            ending: HashMap::new(),
            gone: HashSet::new(),
        }
    }

    /// The pod holds nothing any more: it has ended, or is gone.
    pub(crate) fn end(&mut self, uid: &str) {
        self.unseen.remove(uid);
        self.ending.remove(uid);
        self.index.release(uid);
    }

    /// The API server says that the pod has ended or is gone, and the watch has yet to show it.
    pub(crate) fn end_before_the_watch(&mut self, uid: &str) {
        self.end(uid);
        self.gone.insert(uid.to_owned());
    }
}
