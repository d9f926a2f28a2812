//! All that is known now, gathered for one answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use sluice_placement::inventory::NodeInventory;
use sluice_proto::control::SnapshotResponse;
use tokio::sync::watch;

use super::InventorySlot;
use crate::managers::{self, Board, ClientSets, ClientSetsWatch, Launch, Status};
use crate::pods::{Assignments, Pods, PodsWatch};

/// Prometheus waits 10 s by default; an answer with a gap after one second is worth more than none.
const DEADLINE: Duration = Duration::from_secs(1);

/// Where the facts come from.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Name of the node.
    pub node: String,
    /// GPUs; `None` until the driver has answered.
    pub inventory: InventorySlot,
    /// Pods.
    pub pods: PodsWatch,
    /// Who is a client where.
    pub assignments: watch::Receiver<Arc<Assignments>>,
    /// What the managers are to have.
    pub sets: ClientSetsWatch,
    /// How the managers are doing.
    pub board: Board,
    /// Where their control sockets are.
    pub launch: Launch,
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
    /// Who is a client where.
    pub assignments: Arc<Assignments>,
    /// What the managers are to have; `None` until that is known.
    pub sets: Option<Arc<ClientSets>>,
    /// How the managers are doing, by GPU.
    pub managers: BTreeMap<String, Status>,
    /// What the managers said of their clients, by GPU; why not, in words.
    pub snapshots: BTreeMap<String, Result<SnapshotResponse, String>>,
}

impl Sources {
    /// Asks everybody, at once.
    pub async fn gather(&self) -> Facts {
        let managers = self.board.now();
        let asked = managers.keys().map(|gpu| async move {
            let answer = managers::snapshot(&self.launch.control(gpu), DEADLINE).await;
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
