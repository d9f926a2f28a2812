//! The status of each manager, for readiness, metrics and the state page.

use std::collections::BTreeMap;

use tokio::sync::watch;

use crate::self_test::Outcome;

/// State of a manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ManagerState {
    /// Its process runs, but it does not have its clients yet.
    #[default]
    Starting,
    /// It has its current clients.
    Serving,
    /// It refused its current clients and works with the previous ones; the log says why.
    Outdated,
    /// Its process ended; the next one starts after a delay.
    BackingOff,
}

/// One manager.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct ManagerStatus {
    /// Its state.
    pub state: ManagerState,
    /// Process id while it runs.
    pub pid: Option<u32>,
    /// Number of restarts of its process.
    pub restarts: u64,
    /// The last generation of clients that the running process accepted.
    pub generation: Option<u64>,
    /// Outcome of the GPU's self-test, on which the manager relies.
    pub self_test: Outcome,
}

/// The status of all managers by the UUID of their GPU. Each reconciler writes its own entry; metrics and readiness
/// read all.
#[derive(Debug, Clone, Default)]
pub struct ManagerStatuses(watch::Sender<BTreeMap<String, ManagerStatus>>);

impl ManagerStatuses {
    /// The status of all managers now.
    #[must_use]
    pub fn now(&self) -> BTreeMap<String, ManagerStatus> {
        self.0.borrow().clone()
    }

    /// The status of all managers as it changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<BTreeMap<String, ManagerStatus>> {
        self.0.subscribe()
    }

    pub(crate) fn update(&self, gpu: &str, change: impl FnOnce(&mut ManagerStatus)) {
        self.0.send_if_modified(|all| {
            let status = all.entry(gpu.to_owned()).or_default();
            let before = status.clone();
            change(status);
            *status != before
        });
    }

    pub(crate) fn add(&self, gpu: &str) {
        self.0.send_modify(|all| {
            all.entry(gpu.to_owned()).or_default();
        });
    }

    pub(crate) fn remove(&self, gpu: &str) {
        self.0.send_if_modified(|all| all.remove(gpu).is_some());
    }
}
