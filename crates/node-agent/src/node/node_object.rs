//! Keeps what the agent publishes on its node object as it should be: annotation, labels, countable amounts and the taint of lost GPUs.
//! They are written whenever they differ from the GPUs, even if another client changed them.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::Value;
use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;
use tracing::warn;

use super::node_writer::{NodeWriter, Part};
use super::{WantedTaint, lost_gpu_taint, node_metadata, node_status};
use crate::capacity::NodeCapacity;
use crate::injection_proof::Proof;
use crate::nri::InForce;
use crate::watch_backoff::WatchBackoff;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What the node object is to show.
#[derive(Debug)]
pub struct Wanted {
    /// The GPUs: annotation and labels.
    pub inventory: watch::Receiver<NodeInventory>,
    /// Countable amounts.
    pub capacity: watch::Receiver<NodeCapacity>,
    /// The taint of lost GPUs.
    pub taint: watch::Receiver<WantedTaint>,
    /// How containers get their GPUs: an annotation, with the next one.
    pub injection: watch::Receiver<InForce>,
    /// Whether that path is proven.
    pub proof: watch::Receiver<Proof>,
    /// Whether the extender may place pods here: inventory and amounts are published only then.
    pub is_for_extender: bool,
}

/// Keeps the node object equal to what is wanted, for ever.
pub async fn reconcile(client: Client, node: String, wanted: Wanted) {
    let Wanted { mut inventory, mut capacity, mut taint, mut injection, mut proof, is_for_extender } = wanted;
    let nodes = Api::<Node>::all(client);
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let events = watcher(nodes.clone(), config).backoff(WatchBackoff::new(FIRST_PAUSE, LONGEST_PAUSE));
    let mut events = std::pin::pin!(events);
    let mut seen: Option<Node> = None;
    let (mut metadata, mut status) = (NodeWriter::new(Part::Metadata), NodeWriter::new(Part::Status));
    let mut taints = NodeWriter::new(Part::Taint);
    loop {
        let patch = {
            let path = injection.borrow_and_update().label();
            let proof = proof.borrow_and_update();
            let injection = path.map(|path| format!("{path}: {}", proof.label()));
            let wanted = inventory.borrow_and_update();
            seen.as_ref().and_then(|node| {
                node_metadata::patch(&node.metadata, &wanted, is_for_extender, injection.as_deref())
            })
        };
        let status_patch = seen.as_ref().and_then(|node| {
            let published = status_patch(node, &inventory, &mut capacity);
            if is_for_extender { published } else { node_status::patch(node.status.as_ref(), None) }
        });
        let wanted_taint = *taint.borrow_and_update();
        let taint_patch = seen.as_ref().and_then(|node| lost_gpu_taint::patch(node, wanted_taint));
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node))) => seen = Some(node),
                Some(Ok(watcher::Event::Delete(_))) => seen = None,
                Some(Ok(_)) => {}
                Some(Err(why)) => warn!(%why, "the watch of this node failed"),
                None => return,
            },
            changed = inventory.changed() => if changed.is_err() { return },
            changed = capacity.changed() => if changed.is_err() { return },
            changed = injection.changed() => if changed.is_err() { return },
            changed = proof.changed() => if changed.is_err() { return },
            changed = taint.changed() => if changed.is_err() { return },
            () = taints.allowed(), if taint_patch.is_some() => {
                let Some(patch) = taint_patch else { continue };
                seen = taints.write(&nodes, &node, &patch).await.or(seen);
            }
            () = metadata.allowed(), if patch.is_some() => {
                let Some(patch) = patch else { continue };
                seen = metadata.write(&nodes, &node, &patch).await.or(seen);
            }
            () = status.allowed(), if status_patch.is_some() => {
                let Some(patch) = status_patch else { continue };
                seen = status.write(&nodes, &node, &patch).await.or(seen);
            }
        }
    }
}

/// What to write to the node's status, if it differs. Unknown amounts of a node with GPUs leave it as it is.
fn status_patch(
    node: &Node,
    inventory: &watch::Receiver<NodeInventory>,
    capacity: &mut watch::Receiver<NodeCapacity>,
) -> Option<Value> {
    let amounts = capacity.borrow_and_update().amounts;
    if amounts.is_none() && !inventory.borrow().gpus.is_empty() {
        return None;
    }
    node_status::patch(node.status.as_ref(), amounts)
}

/// Removes annotation, labels, amounts and the taint, when the agent leaves the node for good.
///
/// # Errors
/// The API server's error.
pub async fn remove(client: Client, node: &str) -> kube::Result<()> {
    let nodes = Api::<Node>::all(client);
    let parameters = PatchParams::default();
    let status = Patch::Merge(node_status::removal());
    let without_amounts = nodes.patch_status(node, &parameters, &status).await;
    // The answer is the whole node. The names of some labels follow from GPUs that the cleanup does not know.
    let labels = without_amounts.as_ref().ok().and_then(|node| node.metadata.labels.as_ref());
    let metadata = Patch::Merge(node_metadata::removal(labels));
    let without_metadata = nodes.patch(node, &parameters, &metadata).await;
    let taint =
        without_metadata.as_ref().ok().and_then(|node| lost_gpu_taint::patch(node, WantedTaint::Absent));
    let without_taint = match taint {
        Some(patch) => Some(nodes.patch(node, &parameters, &Patch::Merge(patch)).await),
        None => None,
    };
    for outcome in [Some(without_amounts), Some(without_metadata), without_taint].into_iter().flatten() {
        match outcome {
            // A node that is gone has nothing to remove.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            outcome => drop(outcome?),
        }
    }
    Ok(())
}
