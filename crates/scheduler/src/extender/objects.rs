//! Pods, nodes and disruption budgets of the API, reduced to the needed fields. The other fields that a watch delivers are not even
//! deserialised.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Deserializer};

pub(crate) use budget::Budget;
use spec::PodSpec;

mod budget;
mod spec;

/// A pod.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Pod {
    #[serde(default, deserialize_with = "lean")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    phase: Option<String>,
    nominated_node_name: Option<String>,
    start_time: Option<Time>,
    conditions: Option<Vec<PodCondition>>,
}

/// A condition of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

impl Pod {
    pub(crate) fn uid(&self) -> Option<&str> {
        self.metadata.uid.as_deref()
    }

    /// The node that it is bound to.
    pub(crate) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// `namespace/name`, for logs.
    pub(crate) fn title(&self) -> String {
        let (namespace, name) = self.path();
        format!("{namespace}/{name}")
    }

    pub(crate) fn path(&self) -> (&str, &str) {
        let ObjectMeta { namespace, name, .. } = &self.metadata;
        (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
    }

    /// The node that kube-scheduler keeps for it, while it waits for pods there to end. A pod that is being deleted is
    /// not scheduled any more.
    pub(crate) fn nominated_node(&self) -> Option<&str> {
        if self.is_being_deleted() {
            return None;
        }
        self.status.nominated_node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Its version. Versions of pods increase with time.
    pub(crate) fn version(&self) -> Option<u64> {
        self.metadata.resource_version.as_deref()?.parse().ok()
    }

    /// kube-scheduler's report that the latest attempt to schedule the pod failed.
    pub(crate) fn scheduling_failure(&self) -> Option<&PodCondition> {
        let mut conditions = self.status.conditions.iter().flatten();
        conditions.find(|condition| condition.kind == "PodScheduled" && condition.status == "False")
    }

    /// When kubelet accepted it, in seconds since 1970. A pod that kubelet has not accepted is younger than all others,
    /// as kube-scheduler's `GetPodStartTime` has it.
    pub(crate) fn started(&self) -> i64 {
        self.status.start_time.as_ref().map_or(i64::MAX, |time| time.0.as_second())
    }

    pub(crate) fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.labels.as_ref()
    }

    pub(crate) fn spec(&self) -> &PodSpec {
        &self.spec
    }

    /// Its deletion was requested, and it still exists.
    pub(crate) fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.annotations.as_ref()
    }

    /// All its containers have ended for good. A pod that is being deleted may still run; only the phase that kubelet
    /// reports counts.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }
}

/// A node, by its metadata alone.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Node {
    #[serde(default, deserialize_with = "lean")]
    metadata: ObjectMeta,
}

impl Node {
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

/// Metadata without owners and managed fields.
fn lean<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Lean {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        deletion_timestamp: Option<Time>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
    }
    let Lean { name, namespace, uid, resource_version, deletion_timestamp, labels, annotations } =
        Lean::deserialize(from)?;
    let annotations = annotations.map(|mut all| {
        all.retain(|key, _| key.starts_with(sluice_placement::annotations::keys::PREFIX));
        all
    });
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        deletion_timestamp,
        labels,
        annotations,
        ..ObjectMeta::default()
    })
}

/// Same kind and group as in `k8s_openapi`, with fewer fields.
macro_rules! resource {
    ($lean:ty, $full:ty, metadata_only: $metadata_only:literal) => {
        impl Resource for $lean {
            type DynamicType = ();
            type Scope = <$full as Resource>::Scope;

            fn kind(of: &()) -> Cow<'_, str> {
                <$full as Resource>::kind(of)
            }
            fn group(of: &()) -> Cow<'_, str> {
                <$full as Resource>::group(of)
            }
            fn version(of: &()) -> Cow<'_, str> {
                <$full as Resource>::version(of)
            }
            fn plural(of: &()) -> Cow<'_, str> {
                <$full as Resource>::plural(of)
            }
            fn metadata_api() -> bool {
                $metadata_only
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(Pod, core::Pod, metadata_only: false);
resource!(Node, core::Node, metadata_only: true);
resource!(Budget, PodDisruptionBudget, metadata_only: false);

#[cfg(test)]
mod tests;
