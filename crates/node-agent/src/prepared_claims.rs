//! The prepared claims of this node: what the DRA driver hands on to the assignment of clients.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
pub(crate) use sluice_placement::share_config::DRIVER;

/// The prepared claims of this node by uid.
pub type PreparedClaims = BTreeMap<String, PreparedClaim>;

/// A claim that kubelet had prepared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreparedClaim {
    /// Namespace of the claim and of its pod.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// Uid of the pod that the claim is reserved for.
    pub pod_uid: String,
    /// Name of that pod.
    pub pod: String,
    /// What the claim promises.
    pub shares: Vec<GpuShare>,
}

/// A share of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuShare {
    /// UUID of the GPU.
    pub gpu: String,
    /// The request of the claim that it satisfies, without the name of a subrequest.
    pub request: String,
    /// The allocation's id, which tells several shares of one GPU apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// The promise, as annotations of a pod would state it.
    pub annotations: BTreeMap<String, String>,
}
