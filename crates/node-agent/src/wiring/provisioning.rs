//! The two ways in which a node's containers get GPUs: by claims, or as device slots. A node has one of them, or none while pods have claims
//! that it is not to give any more.

use std::sync::Arc;

use kube::Client;
use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;

use crate::capacity::NodeCapacity;
use crate::config::Config;
use crate::device_plugin::{self, Provision};
use crate::dra::{self, Checkpoint};
use crate::gpu_path::GpuPath;
use crate::injection_proof::{self, Proof};
use crate::lost_gpus::LostGpus;
use crate::node::events::EventQueue;
use crate::nri::{self, InForce, Injection, TenantPlugin};
use crate::pods::{AssignmentsWatch, PodsWatch};
use crate::prepared_claims::PreparedClaims;
use crate::tasks::AgentTasks;

/// What both ways of giving GPUs to containers work with.
pub(super) struct Parts {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) provision: Provision,
    pub(super) gpus: watch::Receiver<NodeInventory>,
    pub(super) lost: watch::Receiver<LostGpus>,
    pub(super) pods: PodsWatch,
    pub(super) assignments: AssignmentsWatch,
    pub(super) event_queue: EventQueue,
    pub(super) injection_known: watch::Sender<InForce>,
    pub(super) proof_known: watch::Sender<Proof>,
    pub(super) registered: watch::Sender<bool>,
    pub(super) loader_refusal: Option<String>,
}

/// Gives GPUs by claims.
pub(super) fn start_claims(
    config: &Config,
    parts: Parts,
    prepared: watch::Sender<Arc<PreparedClaims>>,
    tasks: &mut AgentTasks,
) {
    let Parts { injection_known, proof_known, registered, event_queue, loader_refusal, .. } = parts;
    injection_known.send_replace(InForce::Claims);
    proof_known.send_replace(Proof::Open);
    let folders = config.nri_places().cdi;
    let settings = dra::Settings {
        kubelet_folder: config.host.kubelet_folder.clone(),
        cdi_folder: folders.0.last().cloned().unwrap_or_default(),
        provision: parts.provision,
        // A channel without losses: no device is tainted for eviction.
        lost: if config.evicts_by_device_taint(GpuPath::Claims) {
            parts.lost
        } else {
            watch::channel(LostGpus::new()).1
        },
    };
    let inputs = dra::Inputs {
        client: parts.client,
        node: parts.node,
        inventory: parts.gpus,
        pods: parts.pods,
        assignments: parts.assignments,
        cdi: folders,
        checkpoint: Checkpoint::in_folder(&config.host.state_folder),
        prepared,
        sandboxes: config.sandboxes.clone(),
    };
    let stop = tasks.stop.clone();
    tasks.spawn_graceful("claims", async move {
        // Their receivers take the end of a sender for the end of the agent.
        let _kept = (injection_known, proof_known);
        // A node offers no GPU that its containers would use without limits.
        if loader_refusal.is_some() {
            stop.cancelled().await;
            return Ok(());
        }
        dra::run(settings, inputs, event_queue, registered, stop).await
    });
}

/// Gives no GPU to new containers. The pods with prepared claims stay clients.
pub(super) fn start_nothing(
    parts: Parts,
    prepared: watch::Sender<Arc<PreparedClaims>>,
    tasks: &mut AgentTasks,
) {
    parts.injection_known.send_replace(InForce::Closed);
    parts.proof_known.send_replace(Proof::Open);
    let stop = tasks.stop.clone();
    tasks.spawn_graceful("claims", async move {
        // The ends of their channels would be taken for the end of the agent.
        let _kept = (parts, prepared);
        stop.cancelled().await;
        anyhow::Ok(())
    });
}

/// Gives GPUs as device slots to pods that the extender has placed.
pub(super) fn start_slots(
    config: &Config,
    parts: Parts,
    injection: watch::Receiver<InForce>,
    capacity: watch::Receiver<NodeCapacity>,
    plugin_metrics: device_plugin::Metrics,
    tasks: &mut AgentTasks,
) {
    let Parts { node, provision, gpus, pods, assignments, event_queue, registered, loader_refusal, .. } =
        parts;
    let (injection_known, proof_known) = (parts.injection_known, parts.proof_known);
    let (registration_known, registration) = watch::channel(None);
    let plugin = TenantPlugin {
        injection: config.injection,
        places: config.nri_places(),
        provision: Arc::new(provision.clone()),
        library_folder: config.library_folder(),
        pods: pods.clone(),
        assignments: assignments.clone(),
        events: event_queue.clone(),
        registration: registration_known,
        in_force: injection.clone(),
        unsupported_reason: None,
    };
    let settings =
        nri::Settings { node: node.clone(), wanted: config.injection, cdi: config.nri_places().cdi };
    let inputs = injection_proof::Inputs {
        node: node.clone(),
        proc: config.host.proc.clone(),
        own_path: config.own_path,
        in_force: injection.clone(),
        pods,
        assignments,
    };
    proof_known.send_replace(Proof::Open);
    tasks.spawn_abortable(
        "injection proof",
        injection_proof::follow(inputs, proof_known, event_queue.clone()),
    );
    tasks.spawn_abortable(
        "injection",
        nri::follow(settings, registration, gpus, injection_known, event_queue),
    );
    if config.injection != Injection::Runtime {
        tasks.spawn_abortable("nri", nri::serve_tenants(plugin));
    }
    let settings = device_plugin::Settings { folder: config.host.plugin_folder.clone(), provision };
    let plugin_stop = tasks.stop.clone();
    tasks.spawn_graceful("plugin", async move {
        // A node offers no GPU that its containers cannot get, or would use without limits.
        if loader_refusal.is_some() {
            plugin_stop.cancelled().await;
            return Ok(());
        }
        let mut injection = injection;
        let works = async { injection.wait_for(InForce::works).await.is_ok() };
        match plugin_stop.run_until_cancelled(works).await {
            Some(true) => {
                device_plugin::run(settings, capacity, plugin_metrics, registered, plugin_stop).await
            }
            Some(false) | None => Ok(()),
        }
    });
}
