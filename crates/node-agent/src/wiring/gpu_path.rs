//! The path by which the node gives its GPUs to containers, decided once at the agent's start: from the checkpoint, the node's pods and its label.

use std::collections::BTreeSet;

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tracing::info;

use crate::config::Config;
use crate::dra::{self, Checkpoint};
use crate::gpu_path::GpuPath;
use crate::node;
use crate::prepared_claims::PreparedClaims;

/// The decision.
pub(super) struct Decided {
    pub(super) path: GpuPath,
    /// Why the path is another than the operator wants.
    pub(super) note: Option<String>,
    pub(super) prepared: PreparedClaims,
}

/// Decides, and takes the node's devices back if it does not give claims any more: kube-scheduler and the extender would promise the
/// same GPU.
///
/// # Errors
/// What the decision depends on cannot be read. Any guess could promise a GPU twice, so the agent does not start.
pub(super) async fn decide(config: &Config, client: &Client) -> anyhow::Result<Decided> {
    let prepared = claims_of_pods(config, client).await?;
    let has_label = config.dra
        && node::labels(client.clone(), &config.node)
            .await
            .with_context(|| format!("cannot read whether this node has the label {}", dra::NODE_LABEL))?
            .get(dra::NODE_LABEL)
            .is_some_and(|value| value == "true");
    let path = GpuPath::of(config.dra, has_label, &prepared);
    // Without the flag the agent has no right to do it. Kubelet deletes the devices of a driver that is away for 30 s.
    if config.dra && path == GpuPath::Slots {
        dra::withdraw_devices(client, &config.node)
            .await
            .context("cannot delete this node's ResourceSlice, and offers no device slots beside it")?;
    }
    Ok(Decided { path, note: path.note(has_label, &prepared), prepared })
}

/// The claims of the checkpoint whose pods exist. The others are removed from it: kubelet does not ask again for the claim of a pod that was
/// deleted by force while no driver answered.
async fn claims_of_pods(config: &Config, client: &Client) -> anyhow::Result<PreparedClaims> {
    let checkpoint = Checkpoint::in_folder(&config.host.state_folder);
    let mut prepared = checkpoint.read()?;
    if prepared.is_empty() {
        return Ok(prepared);
    }
    let of_node = ListParams::default().fields(&format!("spec.nodeName={}", config.node));
    let pods = Api::<Pod>::all(client.clone()).list(&of_node).await;
    let pods = pods.context("cannot find out whether the pods with prepared claims still exist")?;
    let uids: BTreeSet<_> = pods.items.into_iter().filter_map(|pod| pod.metadata.uid).collect();
    let of_deleted: Vec<_> = prepared.extract_if(.., |_, claim| !uids.contains(&claim.pod_uid)).collect();
    if !of_deleted.is_empty() {
        checkpoint.write(&prepared).context("cannot write the prepared claims")?;
    }
    for (uid, claim) in of_deleted {
        info!(claim = claim.name, uid, pod = claim.pod, "dropped the prepared claim of a deleted pod");
    }
    Ok(prepared)
}
