//! A manager for each GPU that the node has, and none for one that it no longer has.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::keeper::{Keeper, PUSH_FIRST};
use super::verdict::Verdict;
use super::{Board, ClientSetsWatch, Launch};
use crate::selftest::Tester;

/// How managers are started and looked after.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What is started.
    pub launch: Launch,
    /// Of this start of the agent.
    pub instance: String,
    /// Tries GPUs before their managers start; `None` if nobody wants that.
    pub tester: Option<Tester>,
    /// The pause before the first restart.
    pub restart_first: Duration,
    /// The longest pause before a restart.
    pub restart_most: Duration,
    /// A process that ran for so long is restarted with the shortest pause again.
    pub ran_well: Duration,
    /// The pause after the first push that failed.
    pub push_first: Duration,
    /// The longest pause between pushes that fail.
    pub push_most: Duration,
    /// How long a manager may take to answer.
    pub answer_within: Duration,
    /// How often a manager that has its clients is asked whether it is still there.
    pub look_every: Duration,
    /// A manager that has not answered for so long is killed and started again.
    pub unresponsive_after: Duration,
}

impl Settings {
    /// With the usual times.
    #[must_use]
    pub fn new(launch: Launch, instance: String) -> Self {
        Self {
            launch,
            instance,
            tester: None,
            restart_first: Duration::from_millis(100),
            restart_most: Duration::from_secs(30),
            ran_well: Duration::from_secs(10),
            push_first: PUSH_FIRST,
            push_most: Duration::from_secs(5),
            answer_within: Duration::from_secs(5),
            look_every: Duration::from_secs(10),
            unresponsive_after: Duration::from_secs(30),
        }
    }
}

/// A manager that runs, and how to stop it.
struct Kept {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Runs until `stop`; all managers have ended when this returns.
pub async fn supervise(
    settings: Settings,
    mut inventory: watch::Receiver<NodeInventory>,
    sets: ClientSetsWatch,
    board: Board,
    stop: CancellationToken,
) {
    let mut kept: BTreeMap<String, Kept> = BTreeMap::new();
    loop {
        let gpus: Vec<String> =
            inventory.borrow_and_update().gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        let gone: Vec<String> = kept.keys().filter(|gpu| !gpus.contains(gpu)).cloned().collect();
        for gpu in gone {
            info!(gpu, "the GPU is gone; its pod-manager ends");
            if let Some(manager) = kept.remove(&gpu) {
                manager.end().await;
            }
        }
        for gpu in gpus {
            kept.entry(gpu).or_insert_with_key(|gpu| {
                board.add(gpu);
                let keeper = Keeper {
                    gpu: gpu.clone(),
                    settings: settings.clone(),
                    board: board.clone(),
                    sets: sets.clone(),
                    inventory: inventory.clone(),
                    generation: 0,
                    verdict: Verdict::default(),
                };
                let stop = CancellationToken::new();
                let task = tokio::spawn(keeper.run(stop.clone()));
                Kept { stop, task }
            });
        }
        tokio::select! {
            Ok(()) = inventory.changed() => {}
            () = stop.cancelled() => break,
        }
    }
    for manager in kept.values() {
        manager.stop.cancel();
    }
    for manager in kept.into_values() {
        manager.end().await;
    }
}

impl Kept {
    async fn end(self) {
        self.stop.cancel();
        if let Err(why) = self.task.await {
            tracing::error!(%why, "the keeper of a pod-manager failed");
        }
    }
}
