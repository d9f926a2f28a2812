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

const LABELS: [NodeLabel; 2] = [
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
        mistakes.extend(label.affinity_mistake(spec));
    }
    mistakes
}

impl NodeLabel {
    fn allowed(&self) -> String {
        format!("{} or nothing: {}", self.value, self.reason)
    }

    /// The mistake of a required node affinity of which each alternative excludes the value.
    fn affinity_mistake(&self, spec: &PodSpec) -> Option<Mistake> {
        let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
        let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        let excluding = |term: &NodeSelectorTerm| {
            term.match_expressions
                .iter()
                .flatten()
                .find(|expression| self.is_excluded_by(expression))
                .cloned()
        };
        let excluding: Option<Vec<NodeSelectorRequirement>> =
            required.node_selector_terms.iter().map(excluding).collect();
        let first = excluding?.into_iter().next()?;
        let values = first.values.unwrap_or_default().join(", ");
        let found = format!("{} {} {values}", first.key, first.operator);
        Some(Mistake::new("spec.affinity.nodeAffinity", found.trim(), self.allowed()))
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
