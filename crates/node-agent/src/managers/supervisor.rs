//! Runs one [`ManagerReconciler`] for each GPU of the node, and ends those of GPUs that are gone.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::reconciler::{ManagerReconciler, PUSH_FIRST};
use super::self_test_state::SelfTestState;
use super::{ClientSetsWatch, ManagerCommand, ManagerStatuses};
use crate::self_test::Tester;

/// How managers are started and supervised.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How a manager is started.
    pub command: ManagerCommand,
    /// Identity of this run of the agent.
    pub instance: String,
    /// Tests GPUs before their managers start; `None` if tests are off.
    pub tester: Option<Tester>,
    /// The pause before the first restart.
    pub restart_first: Duration,
    /// The longest pause before a restart.
    pub restart_most: Duration,
    /// After a process ran for this long, the next restart has the shortest delay again.
    pub ran_well: Duration,
    /// The delay after the first push that failed.
    pub push_first: Duration,
    /// The longest delay between pushes that fail.
    pub push_most: Duration,
    /// How long a manager may take to answer a call.
    pub answer_within: Duration,
    /// Interval at which a manager with current clients is checked.
    pub check_every: Duration,
    /// A manager that has not answered for this long is killed and restarted.
    pub unresponsive_after: Duration,
}

impl Settings {
    /// Settings with the usual times.
    #[must_use]
    pub fn new(command: ManagerCommand, instance: String) -> Self {
        Self {
            command,
            instance,
            tester: None,
            restart_first: Duration::from_millis(100),
            restart_most: Duration::from_secs(30),
            ran_well: Duration::from_secs(10),
            push_first: PUSH_FIRST,
            push_most: Duration::from_secs(5),
            answer_within: Duration::from_secs(5),
            check_every: Duration::from_secs(10),
            unresponsive_after: Duration::from_secs(30),
        }
    }
}

/// A running reconciler, and how to stop it.
struct RunningManager {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Runs until `stop`; all managers have ended when this returns.
pub async fn supervise(
    settings: Settings,
    mut inventory: watch::Receiver<NodeInventory>,
    sets: ClientSetsWatch,
    statuses: ManagerStatuses,
    stop: CancellationToken,
) {
    let mut running: BTreeMap<String, RunningManager> = BTreeMap::new();
    loop {
        let gpus: Vec<String> =
            inventory.borrow_and_update().gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        let gone: Vec<String> = running.keys().filter(|gpu| !gpus.contains(gpu)).cloned().collect();
        for gpu in gone {
            info!(gpu, "the GPU is gone; its pod-manager ends");
            if let Some(manager) = running.remove(&gpu) {
                manager.end().await;
            }
        }
        for gpu in gpus {
            running.entry(gpu).or_insert_with_key(|gpu| {
                statuses.add(gpu);
                let reconciler = ManagerReconciler {
                    gpu: gpu.clone(),
                    settings: settings.clone(),
                    statuses: statuses.clone(),
                    sets: sets.clone(),
                    inventory: inventory.clone(),
                    generation: 0,
                    self_test: SelfTestState::default(),
                };
                let stop = CancellationToken::new();
                let task = tokio::spawn(reconciler.run(stop.clone()));
                RunningManager { stop, task }
            });
        }
        tokio::select! {
            Ok(()) = inventory.changed() => {}
            () = stop.cancelled() => break,
        }
    }
    for manager in running.values() {
        manager.stop.cancel();
    }
    for manager in running.into_values() {
        manager.end().await;
    }
}

impl RunningManager {
    async fn end(self) {
        self.stop.cancel();
        if let Err(why) = self.task.await {
            tracing::error!(%why, "the reconciler of a pod-manager failed");
        }
    }
}
