//! Runs one [`ManagerReconciler`] for each GPU of the node, and ends those of GPUs that are gone.

use std::collections::{BTreeMap, BTreeSet};

use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::reconciler::ManagerReconciler;
use super::{ManagerCommand, ManagerStatuses, MemoryReports, abandoned_sockets, abandoned_tables};
use crate::pods::AssignmentsWatch;
use crate::self_test::{SelfTestState, Tester};

/// How managers are started and supervised.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How a manager is started.
    pub command: ManagerCommand,
    /// Identity of this run of the agent.
    pub instance: String,
    /// Tests GPUs before their managers start; `None` if tests are off.
    pub tester: Option<Tester>,
    /// Where readings of the memory of processes come from.
    pub memory: MemoryReports,
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
    assignments: AssignmentsWatch,
    statuses: ManagerStatuses,
    stop: CancellationToken,
) {
    let gangs = settings.command.gangs();
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
        remove_abandoned_files(&settings.command, &gpus).await;
        for gpu in gpus {
            running.entry(gpu).or_insert_with_key(|gpu| {
                statuses.add(gpu);
                let reconciler = ManagerReconciler {
                    gpu: gpu.clone(),
                    settings: settings.clone(),
                    statuses: statuses.clone(),
                    assignments: assignments.clone(),
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
    // A manager that was killed has left its table. Without managers there are no gangs.
    let _ = tokio::fs::remove_dir_all(gangs).await;
}

/// Removes what managers of other GPUs have left behind. An agent that was killed has ended none of its managers in order.
async fn remove_abandoned_files(command: &ManagerCommand, gpus: &[String]) {
    let folders = [command.socket_folder.clone(), command.control_folder.clone()];
    let (gangs, gpus) = (command.gangs(), gpus.iter().cloned().collect::<BTreeSet<String>>());
    let removal = move || {
        folders.iter().for_each(|folder| abandoned_sockets::remove(folder, &gpus));
        abandoned_tables::remove(&gangs, &gpus);
    };
    if let Err(why) = tokio::task::spawn_blocking(removal).await {
        tracing::error!(%why, "the removal of abandoned sockets and tables failed");
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
