//! The node's taint `sluice.dev/gpu-lost`.

use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};
use sluice_placement::annotations::keys;

/// Effect of the taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostGpuTaint {
    /// Schedulers use the node only for pods that fit nowhere else.
    PreferNoSchedule,
    /// Schedulers do not use the node.
    NoSchedule,
}

/// What becomes of the taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedTaint {
    /// It stays as it is: whether a GPU is lost for long enough is not known yet.
    Keep,
    /// The node is not to have it.
    Absent,
    /// The node is to have it, with this effect.
    Set(LostGpuTaint),
}

impl LostGpuTaint {
    const fn effect(self) -> &'static str {
        match self {
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoSchedule => "NoSchedule",
        }
    }
}

/// The patch that makes the taint as it is wanted; `None` if it is so. A merge patch replaces the whole list, so the patch names the
/// version of the node: the API server refuses it if another client has changed the node since.
pub(super) fn patch(node: &Node, wanted: WantedTaint) -> Option<Value> {
    let there = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let is_ours = |taint: &&Taint| taint.key == keys::GPU_LOST_TAINT;
    let effects: Vec<&str> = there.iter().filter(is_ours).map(|taint| taint.effect.as_str()).collect();
    let wanted: Vec<&str> = match wanted {
        WantedTaint::Keep => return None,
        WantedTaint::Absent => Vec::new(),
        WantedTaint::Set(taint) => vec![taint.effect()],
    };
    if effects == wanted {
        return None;
    }
    let foreign = there.iter().filter(|taint| !is_ours(taint)).map(|taint| json!(taint));
    let ours = wanted.into_iter().map(|effect| json!({"key": keys::GPU_LOST_TAINT, "effect": effect}));
    let taints: Vec<Value> = foreign.chain(ours).collect();
    Some(json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}}))
}

#[cfg(test)]
mod tests;
