//! The JSON between a kube-scheduler and the extender: `k8s.io/kube-scheduler/extender/v1`. Its Go types carry no JSON
//! tags, so the keys are the Go field names. Older releases wrote them in lower case; those are accepted too.
//!
//! A request contains a whole pod and hundreds of node names. Only the needed fields are read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::objects::Pod;

/// Arguments of filter and prioritize.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ExtenderArgs<'a> {
    /// The pod to place.
    #[serde(alias = "pod")]
    pub(crate) pod: Pod,
    /// Names of the nodes that passed the scheduler's own filters. Absent if the extender's configuration lacks
    /// `nodeCacheCapable`.
    #[serde(alias = "nodenames", alias = "nodeNames", borrow, default)]
    pub(crate) node_names: Option<Vec<NodeName<'a>>>,
}

/// A name that is borrowed from the request if it has no escapes, which is always so.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NodeName<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// Answer of filter.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ExtenderFilterResult {
    /// Nodes that remain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_names: Option<Vec<String>>,
    /// Reasons of nodes that can take the pod when its victims have ended.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) failed_nodes: BTreeMap<String, String>,
    /// Reasons of other nodes, where evicting pods would not help.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) failed_and_unresolvable_nodes: BTreeMap<String, String>,
    /// The request could not be answered at all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) error: String,
}

/// One element of the answer of prioritize.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct HostPriority {
    pub(crate) host: String,
    /// 0 to 10.
    pub(crate) score: i64,
}

/// Arguments of bind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ExtenderBindingArgs {
    #[serde(rename = "PodName", alias = "podName")]
    pub(crate) pod_name: String,
    #[serde(rename = "PodNamespace", alias = "podNamespace")]
    pub(crate) pod_namespace: String,
    #[serde(rename = "PodUID", alias = "podUID")]
    pub(crate) pod_uid: String,
    #[serde(rename = "Node", alias = "node")]
    pub(crate) node: String,
}

/// Answer of bind.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ExtenderBindingResult {
    /// Empty: bound.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) error: String,
}

/// Arguments of preempt.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ExtenderPreemptionArgs {
    /// The pod that needs room.
    pub(crate) pod: Pod,
    /// The victims that kube-scheduler chose, by node. Absent if the extender's configuration lacks `nodeCacheCapable`.
    pub(crate) node_name_to_meta_victims: Option<BTreeMap<String, MetaVictims>>,
}

/// Answer of preempt: nodes where the eviction of these pods makes room. Other nodes are left out.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ExtenderPreemptionResult {
    pub(crate) node_name_to_meta_victims: BTreeMap<String, MetaVictims>,
}

/// Pods to evict from a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MetaVictims {
    /// Go writes an empty list as `null`.
    #[serde(rename = "Pods")]
    pub(crate) pods: Option<Vec<MetaPod>>,
    /// Number of evictions that a PodDisruptionBudget does not allow.
    #[serde(rename = "NumPDBViolations", default)]
    pub(crate) violations: i64,
}

/// A pod by its UID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MetaPod {
    #[serde(rename = "UID")]
    pub(crate) uid: String,
}
