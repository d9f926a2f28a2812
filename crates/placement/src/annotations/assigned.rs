//! The scheduler's output on a pod: its assigned GPUs.

use std::collections::BTreeMap;

use super::keys::ASSIGNED_GPU;
use super::lists::{is_uuid, parse_list};
use super::mistake::Mistake;

/// UUIDs of the pod's assigned GPUs; `None` before the assignment.
///
/// # Errors
/// When the annotation is no list of different UUIDs.
pub fn assigned(annotations: &BTreeMap<String, String>) -> Result<Option<Vec<String>>, Mistake> {
    let Some(text) = annotations.get(ASSIGNED_GPU) else {
        return Ok(None);
    };
    let uuids = parse_list(text, is_uuid);
    uuids.map(Some).ok_or_else(|| Mistake::new(ASSIGNED_GPU, text, "GPU UUIDs, comma-separated, none twice"))
}
