//! The part of a pod's demand that single nodes show: the models of their GPUs as labels, and the taints that keep other pods away.
//!
//! kube-scheduler and autoscalers evaluate node affinities and tolerations themselves. They do not call the extender in their simulations of
//! new nodes.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration};
use serde_json::json;
use sluice_placement::annotations::keys;
use sluice_placement::inventory::label_of_model;

use super::patch::{self, Operation};

/// Taints of nodes for pods with GPUs only. The admission plugin ExtendedResourceToleration lets pods tolerate a taint that is named like a
/// resource that they request. A pod of Sluice requests no `nvidia.com/gpu`, and not all clusters have the plugin.
const TAINTS: [&str; 2] = ["nvidia.com/gpu", keys::RESOURCE];

/// The only effect that the plugin tolerates.
const EFFECT: &str = "NoSchedule";

/// Most terms of a node affinity that the webhook writes. A pod of the largest size has 50,000 terms, and each is repeated for each model.
const MOST_TERMS: usize = 256;

/// Adds a toleration for each taint of nodes with GPUs that the pod does not tolerate.
pub(super) fn tolerations(spec: &PodSpec) -> Vec<Operation> {
    let stated = spec.tolerations.as_deref().unwrap_or_default();
    let missing = TAINTS.iter().filter(|taint| !stated.iter().any(|one| tolerates(one, taint)));
    let wanted = missing.map(|taint| json!({"key": taint, "operator": "Exists", "effect": EFFECT}));
    if spec.tolerations.is_some() {
        return wanted.map(|one| patch::add("/spec/tolerations/-".to_owned(), one)).collect();
    }
    let wanted: Vec<_> = wanted.collect();
    vec![patch::add("/spec/tolerations".to_owned(), json!(wanted))]
}

/// Whether the toleration covers the taint with any value.
fn tolerates(toleration: &Toleration, taint: &str) -> bool {
    let is_key = toleration.key.as_deref().is_none_or(|key| key.is_empty() || key == taint);
    let is_effect = toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == EFFECT);
    toleration.operator.as_deref() == Some("Exists") && is_key && is_effect
}

/// Requires nodes with a GPU of one of the models, beside what the pod requires itself.
///
/// Kubernetes accepts a node that meets any term of the required affinity. So each term of the pod is repeated for each model. A term that
/// selects one of the models already stays as it is. If the terms would be too many, nothing is added: the extender compares the models
/// anyway.
pub(super) fn model_affinity(spec: &PodSpec, models: &[String]) -> Option<Operation> {
    let mut labels: Vec<String> = models.iter().filter_map(|model| label_of_model(model)).collect();
    labels.sort();
    labels.dedup();
    if labels.is_empty() {
        return None;
    }
    let affinity = spec.affinity.as_ref();
    let of_nodes = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        of_nodes.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let stated = required.map_or(1, |required| required.node_selector_terms.len());
    if stated.saturating_mul(labels.len()) > MOST_TERMS {
        return None;
    }
    let terms: Vec<NodeSelectorTerm> = match required {
        None => labels.iter().map(|label| with_label(&NodeSelectorTerm::default(), label)).collect(),
        Some(required) => {
            required.node_selector_terms.iter().flat_map(|term| repeated(term, &labels)).collect()
        }
    };
    if required.is_some_and(|required| required.node_selector_terms == terms) {
        return None;
    }
    let required_key = "requiredDuringSchedulingIgnoredDuringExecution";
    let selector = json!({"nodeSelectorTerms": terms});
    Some(match (affinity, of_nodes) {
        (None, _) => {
            patch::add("/spec/affinity".to_owned(), json!({"nodeAffinity": {required_key: selector}}))
        }
        (_, None) => patch::add("/spec/affinity/nodeAffinity".to_owned(), json!({required_key: selector})),
        _ => patch::add(format!("/spec/affinity/nodeAffinity/{required_key}"), selector),
    })
}

/// The term for each label.
fn repeated(term: &NodeSelectorTerm, labels: &[String]) -> Vec<NodeSelectorTerm> {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // An empty term matches no node. With an expression it would match some.
    let is_empty = expressions.is_empty() && fields.is_empty();
    if is_empty || expressions.iter().any(|one| selects_one_of(one, labels)) {
        return vec![term.clone()];
    }
    labels.iter().map(|label| with_label(term, label)).collect()
}

fn selects_one_of(expression: &NodeSelectorRequirement, labels: &[String]) -> bool {
    labels.contains(&expression.key) && ["In", "Exists"].contains(&expression.operator.as_str())
}

fn with_label(term: &NodeSelectorTerm, label: &str) -> NodeSelectorTerm {
    let mut term = term.clone();
    let expression = NodeSelectorRequirement {
        key: label.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec!["true".to_owned()]),
    };
    term.match_expressions.get_or_insert_default().push(expression);
    term
}
