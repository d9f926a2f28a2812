//! The operating system and the processor of the nodes on which a pod may run.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec};
use sluice_placement::annotations::Mistake;

/// A label that each node has with one of few values, and the value that Sluice needs.
struct NodeLabel {
    /// The label's name, now and before Kubernetes 1.14.
    keys: [&'static str; 2],
    value: &'static str,
    reason: &'static str,
}

static LABELS: [NodeLabel; 2] = [
    NodeLabel {
        keys: ["kubernetes.io/os", "beta.kubernetes.io/os"],
        value: "linux",
        reason: "Sluice shares GPUs on Linux nodes only",
    },
    NodeLabel {
        keys: ["kubernetes.io/arch", "beta.kubernetes.io/arch"],
        value: "amd64",
        reason: "Sluice's library is built for x86-64 only",
    },
];

/// What prevents the pod from running on each node that Sluice supports.
pub(super) fn mistakes(spec: &PodSpec) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let [os, _] = &LABELS;
    if let Some(stated) = spec.os.as_ref().filter(|stated| stated.name != os.value) {
        mistakes.push(Mistake::new("spec.os.name", &stated.name, os.allowed()));
    }
    for label in &LABELS {
        let selected = spec.node_selector.iter().flatten();
        let wrong =
            selected.filter(|(key, value)| label.keys.contains(&key.as_str()) && *value != label.value);
        mistakes.extend(
            wrong.map(|(key, value)| {
                Mistake::new(format!("spec.nodeSelector[{key}]"), value, label.allowed())
            }),
        );
    }
    mistakes.extend(affinity_mistake(spec));
    mistakes
}

impl NodeLabel {
    fn allowed(&self) -> String {
        format!("{} or nothing: {}", self.value, self.reason)
    }

    fn is_excluded_by(&self, expression: &NodeSelectorRequirement) -> bool {
        let is_listed = expression.values.iter().flatten().any(|value| value == self.value);
        self.keys.contains(&expression.key.as_str())
            && match expression.operator.as_str() {
                "In" => !is_listed,
                "NotIn" => is_listed,
                "DoesNotExist" => true,
                _ => false,
            }
    }
}

/// The mistake of a required node affinity of which each alternative excludes a value: the first exclusion.
fn affinity_mistake(spec: &PodSpec) -> Option<Mistake> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let terms = &required.node_selector_terms;
    let exclusions: Option<Vec<_>> = terms.iter().map(exclusion).collect();
    let (label, expression) = exclusions?.into_iter().next()?;
    let values = expression.values.as_deref().unwrap_or_default().join(", ");
    let found = format!("{} {} {values}", expression.key, expression.operator);
    Some(Mistake::new("spec.affinity.nodeAffinity", found.trim(), label.allowed()))
}

/// An expression of the alternative that excludes the value which Sluice needs.
fn exclusion(term: &NodeSelectorTerm) -> Option<(&'static NodeLabel, &NodeSelectorRequirement)> {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    LABELS.iter().find_map(|label| {
        expressions.iter().find(|expression| label.is_excluded_by(expression)).map(|found| (label, found))
    })
}
