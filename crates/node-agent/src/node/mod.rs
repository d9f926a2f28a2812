//! What the agent publishes about its node in the cluster.

pub mod events;
pub mod evictions;
pub mod health_events;
mod lost_gpu_taint;
mod node_metadata;
pub mod node_object;
mod node_status;
mod node_writer;
pub mod suspended_condition;
pub mod violation_events;

pub use lost_gpu_taint::{LostGpuTaint, WantedTaint};

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};

/// The labels of a node; none if there is no such node. The agent may list nodes, not get one.
pub(crate) async fn labels(client: Client, node: &str) -> kube::Result<BTreeMap<String, String>> {
    let only_this = ListParams::default().fields(&format!("metadata.name={node}"));
    let found = Api::<Node>::all(client).list(&only_this).await?;
    Ok(found.items.into_iter().find_map(|node| node.metadata.labels).unwrap_or_default())
}
