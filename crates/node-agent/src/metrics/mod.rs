//! The agent's HTTP pages: `/metrics` for Prometheus, `/state` for operators and tests, `/livez` and `/readyz` for
//! kubelet.
//!
//! The series are built anew for each scrape, so a pod that ended leaves none. A manager that hangs costs only its own.

mod client_families;
mod families;
mod gpu_families;
pub mod http;
mod latency_families;
mod manager_families;
mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::join_all;
use sluice_daemon::ProcessFigures;
use sluice_placement::inventory::NodeInventory;
use sluice_proto::control::SnapshotResponse;
use tokio::sync::watch;

use crate::injection_proof::Proof;
use crate::lost_gpus::LostGpus;
use crate::managers::{self, ManagerCommand, ManagerState, ManagerStatus, ManagerStatuses};
use crate::nri::InForce;
use crate::pods::{Assignments, AssignmentsWatch, Pods, PodsWatch};

/// The GPUs, once the driver has answered for the first time.
pub type InventorySlot = Arc<OnceLock<watch::Receiver<NodeInventory>>>;

/// Prometheus waits 10 s by default. A scrape with a gap after one second is better than a failed scrape.
const DEADLINE: Duration = Duration::from_secs(1);

/// Where the facts and the readiness come from.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Name of the node.
    pub node: String,
    /// GPUs; `None` until the driver has answered.
    pub inventory: InventorySlot,
    /// The node's pods.
    pub pods: PodsWatch,
    /// The assignments of pods to GPUs.
    pub assignments: AssignmentsWatch,
    /// The status of the managers.
    pub statuses: ManagerStatuses,
    /// The paths of their control sockets.
    pub command: ManagerCommand,
    /// Whether kubelet has accepted the registration.
    pub registered: watch::Receiver<bool>,
    /// How containers get their GPUs.
    pub injection: watch::Receiver<InForce>,
    /// Whether that path is proven.
    pub proof: watch::Receiver<Proof>,
    /// The lost GPUs.
    pub lost: watch::Receiver<LostGpus>,
    /// Why programs in pods would ignore the library, so that the node offers no device slots.
    pub loader_refusal: Option<String>,
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
    /// The status of the managers, by GPU.
    pub managers: BTreeMap<String, ManagerStatus>,
    /// What the kernel reports about the managers' processes, by GPU.
    pub manager_processes: BTreeMap<String, ProcessFigures>,
    /// How containers get their GPUs; `None` while it is unknown.
    pub injection: Option<&'static str>,
    /// Whether that path is proven.
    pub proof: Proof,
    /// The lost GPUs.
    pub lost: LostGpus,
    /// Why programs in pods would ignore the library, so that the node offers no device slots.
    pub loader_refusal: Option<String>,
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
        let pids = managers.iter().filter_map(|(gpu, status)| Some((gpu.clone(), status.pid?)));
        let manager_processes = pids.map(|(gpu, pid)| (gpu, ProcessFigures::of(&pid.to_string()))).collect();
        Facts {
            node: self.node.clone(),
            inventory: self.inventory.get().map(|inventory| inventory.borrow().clone()),
            pods: self.pods.borrow().clone().unwrap_or_default(),
            assignments: self.assignments.borrow().clone().unwrap_or_default(),
            managers,
            manager_processes,
            injection: self.injection.borrow().label(),
            proof: self.proof.borrow().clone(),
            lost: self.lost.borrow().clone(),
            loader_refusal: self.loader_refusal.clone(),
            snapshots,
        }
    }

    /// What the node still lacks before it can take pods, a text for each condition; empty if it is ready.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let injection = self.injection.borrow();
        // The node offers nothing on purpose. An agent that is not ready would stop the update of the others.
        let is_closed = *injection == InForce::Closed;
        let conditions = [
            (self.inventory.get().is_some(), "the NVIDIA driver has not reported its GPUs"),
            (
                *self.registered.borrow() || is_closed,
                "kubelet has not accepted the registration of this agent",
            ),
            (self.pods.borrow().is_some(), "the API server has not listed the node's pods"),
        ];
        let unmet = conditions.into_iter().filter(|(is_met, _)| !is_met);
        let mut missing: Vec<String> = unmet.map(|(_, text)| text.to_owned()).collect();
        if !injection.works() && !is_closed {
            missing.push(injection.text());
        }
        if let Proof::NotInAgent(why) = &*self.proof.borrow() {
            missing.push(format!("the node agent's container has no driver: {why}"));
        }
        missing.extend(self.loader_refusal.clone());
        for (gpu, status) in self.statuses.now() {
            let text = match status.state {
                ManagerState::Serving => continue,
                ManagerState::Starting => "has not accepted its clients yet",
                ManagerState::Outdated => "refuses its clients",
                ManagerState::BackingOff => "has ended and is restarted soon",
            };
            missing.push(format!("the pod-manager of {gpu} {text}"));
        }
        missing
    }
}

#[cfg(test)]
mod tests;
