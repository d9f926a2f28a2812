//! What kubelet asks the driver for: to prepare claims and to revert it. Both may be asked for again.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client};
use sluice_placement::inventory::NodeInventory;
use sluice_placement::sandboxes::SandboxRuntimeClasses;
use sluice_proto::dra::dra_plugin_server::DraPlugin;
use sluice_proto::dra::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use tokio::sync::{Mutex, watch};
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use super::checkpoint::Checkpoint;
use super::device::device_name;
use super::{claim, library_device};
use crate::nri::CdiFolders;
use crate::pods::assign::assign;
use crate::pods::{Assignments, AssignmentsWatch, Pods, PodsWatch, Refusal};
use crate::prepared_claims::{GpuShare, PreparedClaim, PreparedClaims};

/// Kubelet waits 45 s for an answer, and asks again after an error.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Pause between two attempts to find out which claims of the checkpoint still exist.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(5);

/// What the driver works with.
pub(crate) struct Inputs {
    pub(crate) client: Client,
    pub(crate) node: String,
    pub(crate) inventory: watch::Receiver<NodeInventory>,
    pub(crate) pods: PodsWatch,
    pub(crate) assignments: AssignmentsWatch,
    /// Where the CDI devices of GPUs are.
    pub(crate) cdi: CdiFolders,
    pub(crate) checkpoint: Checkpoint,
    /// The prepared claims, as far as the checkpoint has them.
    pub(crate) prepared: watch::Sender<Arc<PreparedClaims>>,
    /// RuntimeClasses whose pods get no share.
    pub(crate) sandboxes: SandboxRuntimeClasses,
}

/// The driver. One claim is prepared at a time, so that two cannot be promised the same share.
pub(crate) struct ClaimDriver {
    inputs: Inputs,
    one_at_a_time: Mutex<()>,
}

impl ClaimDriver {
    pub(crate) fn new(inputs: Inputs) -> Self {
        Self { inputs, one_at_a_time: Mutex::new(()) }
    }

    /// Drops the claims that the API server does not have any more: a kubelet that has lost its checkpoint never asks for it. Then waits
    /// for ever.
    pub(crate) async fn drop_stale(&self) {
        let at_start = Arc::clone(&self.inputs.prepared.borrow());
        for (uid, prepared) in at_start.iter() {
            while let Err(why) = self.drop_if_stale(uid, prepared).await {
                warn!(claim = prepared.name, why, "cannot find out whether a prepared claim still exists");
                tokio::time::sleep(BETWEEN_ATTEMPTS).await;
            }
        }
        std::future::pending().await
    }

    async fn drop_if_stale(&self, uid: &str, prepared: &PreparedClaim) -> Result<(), String> {
        let claims = Api::<ResourceClaim>::namespaced(self.inputs.client.clone(), &prepared.namespace);
        let found = claims.get_opt(&prepared.name).await.map_err(|why| why.to_string())?;
        if found.is_some_and(|claim| is_held(&claim, uid, prepared)) {
            return Ok(());
        }
        info!(claim = prepared.name, uid, "dropped a prepared claim that its pod does not have any more");
        self.unprepare(uid).await
    }

    async fn prepare(&self, asked: &Claim) -> Result<Vec<Device>, String> {
        let _guard = self.one_at_a_time.lock().await;
        let known = self.inputs.prepared.borrow().get(&asked.uid).cloned();
        if let Some(prepared) = known {
            return self.devices(&prepared).await;
        }
        let prepared = self.read(asked).await?;
        let devices = self.devices(&prepared).await?;
        let mut all = PreparedClaims::clone(&self.inputs.prepared.borrow());
        all.insert(asked.uid.clone(), prepared.clone());
        self.check(&prepared, &all).await?;
        self.keep(all).await?;
        info!(claim = asked.name, uid = asked.uid, pod = prepared.pod, "prepared a claim");
        Ok(devices)
    }

    /// The claim from the API server.
    async fn read(&self, asked: &Claim) -> Result<PreparedClaim, String> {
        let claims = Api::<ResourceClaim>::namespaced(self.inputs.client.clone(), &asked.namespace);
        let found = claims.get(&asked.name).await;
        let found = found.map_err(|why| format!("cannot read the claim from the API server: {why}"))?;
        if found.metadata.uid.as_deref() != Some(asked.uid.as_str()) {
            return Err(format!(
                "the claim {}/{} has the uid {:?}, expected {}",
                asked.namespace, asked.name, found.metadata.uid, asked.uid
            ));
        }
        let inventory = self.inputs.inventory.borrow().clone();
        claim::read(&found, &self.inputs.node, &inventory).map_err(|mistakes| mistakes.to_string())
    }

    /// Whether the pod is one to be limited, and the managers can keep the promise beside all others of the node.
    async fn check(&self, prepared: &PreparedClaim, all: &PreparedClaims) -> Result<(), String> {
        let mut pods = self.inputs.pods.clone();
        // Kubelet may know the pod a moment earlier.
        let is_listed =
            |pods: &Option<Arc<Pods>>| pods.as_ref().is_some_and(|pods| pods.contains_key(&prepared.pod_uid));
        let listed = pods.wait_for(is_listed).await.map_err(|why| why.to_string())?.clone();
        let class = listed
            .iter()
            .filter_map(|pods| pods.get(&prepared.pod_uid))
            .find_map(|pod| pod.runtime_class.clone());
        if let Some(mistake) = self.inputs.sandboxes.mistake(class.as_deref()) {
            return Err(mistake.to_string());
        }
        let before = self.inputs.assignments.borrow().clone().unwrap_or_default();
        let inventory = self.inputs.inventory.borrow().clone();
        let after = assign(&listed.unwrap_or_default(), all, &inventory, &before);
        newly_refused(&after, &before, all).map_or(Ok(()), |why| Err(why.to_string()))
    }

    /// The answer: of each share the GPU and the library. Both are CDI devices.
    async fn devices(&self, prepared: &PreparedClaim) -> Result<Vec<Device>, String> {
        let (folders, shares) = (self.inputs.cdi.clone(), prepared.shares.clone());
        let uuids: Vec<String> = shares.iter().map(|share| share.gpu.clone()).collect();
        let named = tokio::task::spawn_blocking(move || folders.qualified(&uuids)).await;
        let named = named.map_err(|why| why.to_string())??;
        let device = |(share, qualified): (GpuShare, String)| Device {
            request_names: vec![share.request],
            pool_name: self.inputs.node.clone(),
            device_name: device_name(&share.gpu),
            cdi_device_ids: vec![qualified, library_device::QUALIFIED.to_owned()],
            share_id: share.share_id,
        };
        Ok(shares.into_iter().zip(named).map(device).collect())
    }

    async fn unprepare(&self, uid: &str) -> Result<(), String> {
        let _guard = self.one_at_a_time.lock().await;
        let mut all = PreparedClaims::clone(&self.inputs.prepared.borrow());
        match all.remove(uid) {
            Some(removed) => {
                self.keep(all).await?;
                info!(claim = removed.name, uid, pod = removed.pod, "reverted a claim");
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Writes the claims, then publishes them.
    async fn keep(&self, all: PreparedClaims) -> Result<(), String> {
        let (checkpoint, all) = (self.inputs.checkpoint.clone(), Arc::new(all));
        let written = Arc::clone(&all);
        let outcome = tokio::task::spawn_blocking(move || checkpoint.write(&written)).await;
        let outcome = outcome.map_err(|why| why.to_string())?;
        outcome.map_err(|why| format!("cannot write the node agent's checkpoint: {why}"))?;
        self.inputs.prepared.send_replace(all);
        Ok(())
    }
}

/// Why a pod with claims gets no place, or loses it: the pod of the new claim may be counted before another one.
pub(super) fn newly_refused<'a>(
    after: &'a Assignments,
    before: &Assignments,
    all: &PreparedClaims,
) -> Option<&'a Refusal> {
    let has_claims = |uid: &String| all.values().any(|claim| claim.pod_uid == *uid);
    let mut refused = after.refused.iter();
    refused.find(|(uid, _)| has_claims(uid) && !before.refused.contains_key(*uid)).map(|(_, why)| why)
}

/// Whether the pod of a prepared claim still has it.
fn is_held(claim: &ResourceClaim, uid: &str, prepared: &PreparedClaim) -> bool {
    let reserved =
        claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default();
    claim.metadata.uid.as_deref() == Some(uid) && reserved.iter().any(|pod| pod.uid == prepared.pod_uid)
}

/// What kubelet gets of a call: the text of an error, empty after a success.
async fn within(work: impl Future<Output = Result<(), String>>) -> String {
    let outcome = tokio::time::timeout(ANSWER_WITHIN, work).await;
    outcome.unwrap_or_else(|_| Err(format!("no outcome within {ANSWER_WITHIN:?}"))).err().unwrap_or_default()
}

#[tonic::async_trait]
impl DraPlugin for ClaimDriver {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let mut answer = NodePrepareResourcesResponse::default();
        for asked in request.into_inner().claims {
            let mut devices = Vec::new();
            let error = within(async {
                devices = self.prepare(&asked).await?;
                Ok(())
            })
            .await;
            if !error.is_empty() {
                warn!(namespace = asked.namespace, claim = asked.name, error, "a claim cannot be prepared");
            }
            answer.claims.insert(asked.uid, NodePrepareResourceResponse { devices, error });
        }
        Ok(Response::new(answer))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let mut answer = NodeUnprepareResourcesResponse::default();
        for asked in request.into_inner().claims {
            let error = within(self.unprepare(&asked.uid)).await;
            answer.claims.insert(asked.uid, NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(answer))
    }
}
