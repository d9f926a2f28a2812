//! The JSON between a kube-scheduler and the extender: `k8s.io/kube-scheduler/extender/v1`. Its Go types carry no JSON
//! tags, so the keys are the Go field names. Older releases wrote them in lower case; those are accepted too.
//!
//! A request contains a whole pod and hundreds of node names. Only the needed fields are read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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

/// The needed fields of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Pod {
    #[serde(default)]
    pub(crate) metadata: Metadata,
    pub(crate) spec: Option<Spec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Metadata {
    #[serde(default)]
    pub(crate) uid: String,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    affinity: Option<Affinity>,
    topology_spread_constraints: Option<Vec<Constraint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Affinity {
    node_affinity: Option<Preferences>,
    pod_affinity: Option<Preferences>,
    pod_anti_affinity: Option<Preferences>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Preferences {
    preferred_during_scheduling_ignored_during_execution: Option<Vec<serde::de::IgnoredAny>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Constraint {
    #[serde(default)]
    when_unsatisfiable: String,
}

impl Pod {
    /// Whether the pod has soft preferences among nodes, so that the scheduler's scores matter.
    pub(crate) fn has_soft_preferences(&self) -> bool {
        let Some(spec) = &self.spec else { return false };
        let is_preference = |preferences: &Option<Preferences>| {
            let preferred = preferences.as_ref();
            let preferred =
                preferred.and_then(|some| some.preferred_during_scheduling_ignored_during_execution.as_ref());
            preferred.is_some_and(|preferred| !preferred.is_empty())
        };
        let affinity = spec.affinity.as_ref().is_some_and(|affinity| {
            [&affinity.node_affinity, &affinity.pod_affinity, &affinity.pod_anti_affinity]
                .into_iter()
                .any(is_preference)
        });
        let constraints = spec.topology_spread_constraints.as_deref().unwrap_or_default();
        affinity || constraints.iter().any(|constraint| constraint.when_unsatisfiable == "ScheduleAnyway")
    }
}

/// Answer of filter.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ExtenderFilterResult {
    /// Nodes that remain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_names: Option<Vec<String>>,
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
