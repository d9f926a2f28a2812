//! How each manager is doing, for readiness, metrics and the state page.

use std::collections::BTreeMap;

use tokio::sync::watch;

use crate::selftest::Outcome;

/// Where a manager is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Its process runs, but it does not have its clients yet.
    Starting,
    /// It has the clients that it is to have.
    Serving,
    /// It did not take the clients that it is to have and works with those it had; the log says why.
    Outdated,
    /// Its process ended; the next one waits for its time.
    BackingOff,
}

/// One manager.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Status {
    /// Where it is in its life.
    pub state: State,
    /// Process id while it runs.
    pub pid: Option<u32>,
    /// Times that its process was started again.
    pub restarts: u64,
    /// The last generation of clients that it took since its process started.
    pub generation: Option<u64>,
    /// What the GPU's self-test came to, which the manager believes.
    pub self_test: Outcome,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            state: State::Starting,
            pid: None,
            restarts: 0,
            generation: None,
            self_test: Outcome::default(),
        }
    }
}

/// The status of all managers by the UUID of their GPU: written by their keepers, read by everybody.
#[derive(Debug, Clone)]
pub struct Board(watch::Sender<BTreeMap<String, Status>>);

impl Default for Board {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl Board {
    /// All of them now.
    #[must_use]
    pub fn now(&self) -> BTreeMap<String, Status> {
        self.0.borrow().clone()
    }

    /// All of them, as they change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<BTreeMap<String, Status>> {
        self.0.subscribe()
    }

    pub(crate) fn update(&self, gpu: &str, change: impl FnOnce(&mut Status)) {
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
