//! How a node gives its GPUs to containers, from what the operator wants and what its pods have. Pure.

use std::collections::BTreeSet;

use crate::prepared_claims::PreparedClaims;

/// How a node gives its GPUs to containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuPath {
    /// As device slots, to pods that the extender has placed.
    Slots,
    /// By claims (DRA).
    Claims,
    /// To no new container: pods have claims, and the agent is not to give any. These pods keep their limits.
    Closed,
}

impl GpuPath {
    /// `is_wanted`: the agents give claims on the nodes with the label. While a pod has a claim, no device slots are offered: the extender
    /// does not count claims, and would promise their part of a GPU again.
    pub(crate) fn of(is_wanted: bool, has_label: bool, prepared: &PreparedClaims) -> Self {
        match (is_wanted, has_label, prepared.is_empty()) {
            (true, true, _) | (true, false, false) => Self::Claims,
            (false, _, false) => Self::Closed,
            (true, false, true) | (false, _, true) => Self::Slots,
        }
    }

    /// Why the path is another than the operator wants, and what to do; `None` if it is not. The names of the pods come last: a note of an event
    /// is cut off at a length.
    pub(crate) fn note(self, has_label: bool, prepared: &PreparedClaims) -> Option<String> {
        let pods = || {
            let names = prepared.values().map(|claim| format!("{}/{}", claim.namespace, claim.pod));
            // A pod may have several claims.
            names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Claims if !has_label => Some(format!(
                "this node does not have the label sluice.dev/dra=true, and still gives claims: drain it, then restart its agent. These pods \
                 have claims: {}",
                pods()
            )),
            Self::Closed => Some(format!(
                "this node gives no GPU to new pods, because claims are off (dra.enabled) and pods have some: turn claims on, drain the node, \
                 then turn them off. These pods have claims: {}",
                pods()
            )),
            Self::Claims | Self::Slots => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepared_claims::PreparedClaim;

    #[test]
    fn node_leaves_claims_only_when_no_pod_has_one() {
        let none = PreparedClaims::new();
        let one = PreparedClaim {
            namespace: "ml".into(),
            name: "c".into(),
            pod_uid: "u".into(),
            pod: "train".into(),
            shares: Vec::new(),
        };
        let some = PreparedClaims::from([("c".to_owned(), one)]);
        for (is_wanted, has_label, prepared, path) in [
            (true, true, &none, GpuPath::Claims),
            (true, true, &some, GpuPath::Claims),
            (true, false, &none, GpuPath::Slots),
            (true, false, &some, GpuPath::Claims),
            (false, true, &none, GpuPath::Slots),
            (false, false, &none, GpuPath::Slots),
            (false, true, &some, GpuPath::Closed),
            (false, false, &some, GpuPath::Closed),
        ] {
            let found = GpuPath::of(is_wanted, has_label, prepared);
            assert_eq!(found, path, "{is_wanted} {has_label} {}", prepared.len());
            let note = found.note(has_label, prepared);
            let is_as_wanted =
                (found == GpuPath::Claims) == (is_wanted && has_label) && found != GpuPath::Closed;
            assert_eq!(note.is_none(), is_as_wanted, "{note:?}");
            assert!(note.is_none_or(|note| note.contains("ml/train")));
        }
    }
}
