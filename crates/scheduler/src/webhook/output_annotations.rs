//! Annotations that only Sluice writes on a pod. A pod that is created again brings them along: Velero restores pods with their
//! annotations, and `kubectl debug --copy-to` copies them by its profile `legacy` or with `--keep-annotations`. They say nothing about the
//! new pod, so its creation removes them. A policy of the API server refuses a pod that still has them afterwards.

use std::collections::BTreeMap;

use sluice_placement::annotations::keys;

use super::patch::{self, Operation};

/// The keys, and the component that writes each.
const KEYS: [(&str, &str); 1] = [(keys::ASSIGNED_GPU, "only the scheduler writes it, when it binds the pod")];

/// What was removed from a new pod.
#[derive(Debug, Default)]
pub(super) struct Removal {
    pub(super) patch: Vec<Operation>,
    /// One for each removed key. They name no value: API servers cut warnings of more than 256 characters.
    pub(super) warnings: Vec<String>,
}

/// Removes the annotations.
pub(super) fn remove_from(annotations: &mut BTreeMap<String, String>) -> Removal {
    let removed: Vec<_> = KEYS.into_iter().filter(|(key, _)| annotations.remove(*key).is_some()).collect();
    Removal {
        patch: removed.iter().map(|(key, _)| patch::remove_annotation(key)).collect(),
        warnings: removed.iter().map(|(key, reason)| format!("{key} was removed: {reason}")).collect(),
    }
}
