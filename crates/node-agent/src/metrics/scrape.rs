//! Gathers all facts for one scrape.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use sluice_placement::inventory::NodeInventory;
use sluice_proto::control::SnapshotResponse;
use tokio::sync::watch;

use super::InventorySlot;
use crate::managers::{self, ClientSets, ClientSetsWatch, ManagerCommand, ManagerStatus, ManagerStatuses};
use crate::pods::{Assignments, Pods, PodsWatch};

/// Prometheus waits 10 s by default. A scrape with a gap after one second is better than a failed scrape.
const DEADLINE: Duration = Duration::from_secs(1);

/// Where the facts come from.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Name of the node.
    pub node: String,
    /// GPUs; `None` until the driver has answered.
    pub inventory: InventorySlot,
    /// The node's pods.
    pub pods: PodsWatch,
    /// The assignments of pods to GPUs.
    pub assignments: watch::Receiver<Arc<Assignments>>,
    /// The clients that the managers should have.
    pub sets: ClientSetsWatch,
    /// The status of the managers.
    pub statuses: ManagerStatuses,
    /// The paths of their control sockets.
    pub command: ManagerCommand,
}

/// The facts of one moment.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Name of the node.
    pub node: String,
    /// GPUs; `None` until the driver has answered.
    pub inventory: Option<NodeInventory>,
    /// Pods by uid.
    pub pods: Arc<Pods>,
    /// The assignments of pods to GPUs.
    pub assignments: Arc<Assignments>,
    /// The clients that the managers should have; `None` until they are known.
    pub sets: Option<Arc<ClientSets>>,
    /// The status of the managers, by GPU.
    pub managers: BTreeMap<String, ManagerStatus>,
    /// The managers' snapshots by GPU, or the error of the call.
    pub snapshots: BTreeMap<String, Result<SnapshotResponse, String>>,
}

impl Sources {
    /// Asks all managers concurrently.
    pub async fn gather(&self) -> Facts {
        let managers = self.statuses.now();
        let asked = managers.keys().map(|gpu| async move {
            let answer = managers::snapshot(&self.command.control(gpu), DEADLINE).await;
            (gpu.clone(), answer.map_err(|why| why.to_string()))
        });
        let snapshots = join_all(asked).await.into_iter().collect();
        Facts {
            node: self.node.clone(),
            inventory: self.inventory.get().map(|inventory| inventory.borrow().clone()),
            pods: self.pods.borrow().clone().unwrap_or_default(),
            assignments: Arc::clone(&self.assignments.borrow()),
            sets: self.sets.borrow().clone(),
            managers,
            snapshots,
        }
    }
}
