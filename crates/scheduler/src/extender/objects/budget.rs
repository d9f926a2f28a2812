//! A PodDisruptionBudget.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ObjectMeta;
use kube::core::{Selector, SelectorExt};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// A PodDisruptionBudget: how many of its pods may be disrupted now.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Budget {
    #[serde(default, deserialize_with = "super::lean")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: BudgetSpec,
    #[serde(default)]
    status: BudgetStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct BudgetSpec {
    /// `None`: no pod.
    #[serde(default, deserialize_with = "selector")]
    selector: Option<Selector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BudgetStatus {
    #[serde(default)]
    disruptions_allowed: i32,
    /// Pods whose eviction the API server has already counted, by name.
    disrupted_pods: Option<BTreeMap<String, IgnoredAny>>,
}

impl Budget {
    /// `namespace/name`.
    pub(crate) fn key(&self) -> String {
        let ObjectMeta { namespace, name, .. } = &self.metadata;
        format!("{}/{}", namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
    }

    pub(crate) fn disruptions_allowed(&self) -> i32 {
        self.status.disruptions_allowed
    }

    /// Whether the eviction of this pod uses one of its disruptions.
    pub(crate) fn protects(&self, namespace: &str, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let is_disrupted = self.status.disrupted_pods.as_ref().is_some_and(|pods| pods.contains_key(name));
        self.metadata.namespace.as_deref() == Some(namespace)
            && !is_disrupted
            && self.spec.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

/// A selector that cannot be read matches no pod, as kube-scheduler has it.
fn selector<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Selector>, D::Error> {
    let selector: Option<LabelSelector> = Option::deserialize(from)?;
    Ok(selector.and_then(|selector| Selector::try_from(selector).ok()))
}
