//! The JSON between a kube-scheduler and us: `k8s.io/kube-scheduler/extender/v1`, whose Go types carry no JSON tags, so
//! that keys are the Go field names. Older releases wrote them in lower case; those are read too.
//!
//! What comes is a whole pod and hundreds of node names; only what is needed of it is read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Question of filter and prioritize: which of these nodes?
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ExtenderArgs<'a> {
    /// The pod to be placed.
    #[serde(alias = "pod")]
    pub(crate) pod: Pod,
    /// Names of the nodes that are left after the scheduler's own filters; absent if the scheduler was not told that we
    /// know the nodes (`nodeCacheCapable`).
    #[serde(alias = "nodenames", alias = "nodeNames", borrow, default)]
    pub(crate) node_names: Option<Vec<NodeName<'a>>>,
}

/// A name that is borrowed from the request where it has no escapes, which is always.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NodeName<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// What we need of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Pod {
    #[serde(default)]
    pub(crate) metadata: Metadata,
    #[serde(default)]
    pub(crate) spec: Option<Spec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Metadata {
    #[serde(default)]
    pub(crate) uid: String,
    #[serde(default)]
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    #[serde(default)]
    affinity: Option<Affinity>,
    #[serde(default)]
    topology_spread_constraints: Option<Vec<Constraint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Affinity {
    #[serde(default)]
    node_affinity: Option<Preferences>,
    #[serde(default)]
    pod_affinity: Option<Preferences>,
    #[serde(default)]
    pod_anti_affinity: Option<Preferences>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Preferences {
    #[serde(default)]
    preferred_during_scheduling_ignored_during_execution: Option<Vec<serde::de::IgnoredAny>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Constraint {
    #[serde(default)]
    when_unsatisfiable: String,
}

impl Pod {
    /// Does the pod wish for some nodes more than for others, so that the scheduler's scores matter?
    pub(crate) fn has_soft_preferences(&self) -> bool {
        let Some(spec) = &self.spec else { return false };
        let is_wish = |preferences: &Option<Preferences>| {
            let wishes = preferences.as_ref();
            let wishes =
                wishes.and_then(|some| some.preferred_during_scheduling_ignored_during_execution.as_ref());
            wishes.is_some_and(|wishes| !wishes.is_empty())
        };
        let affinity = spec.affinity.as_ref().is_some_and(|affinity| {
            [&affinity.node_affinity, &affinity.pod_affinity, &affinity.pod_anti_affinity]
                .into_iter()
                .any(is_wish)
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
    /// Why others do not, where evicting pods would help.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) failed_nodes: BTreeMap<String, String>,
    /// Why others do not, where evicting pods would not help.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) failed_and_unresolvable_nodes: BTreeMap<String, String>,
    /// The question could not be answered at all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) error: String,
}

/// One element of the answer of prioritize.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct HostPriority {
    /// The node.
    pub(crate) host: String,
    /// 0 to 10.
    pub(crate) score: i64,
}

/// Order to bind.
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
