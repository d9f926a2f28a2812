//! Which pods hold which device slots, from kubelet's checkpoint: Allocate names slots, and no pod. Kubelet writes the checkpoint some
//! milliseconds after the answer of Allocate; until then the slot counts as free.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;
use sluice_placement::annotations::keys;

use super::slots::slot_number;
use crate::kubelet_checkpoint;

/// The uid of the pod that holds a slot, by the slot's number. Pods that have ended may be included: kubelet drops them when it allocates
/// devices again.
pub(super) type HeldSlots = BTreeMap<u64, String>;

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod: String,
    #[serde(rename = "ResourceName")]
    resource: String,
    /// The ids of devices by NUMA node; `null` if there are none.
    #[serde(rename = "DeviceIDs", deserialize_with = "Option::deserialize")]
    devices: Option<BTreeMap<String, Vec<String>>>,
}

/// Reads the checkpoint. A kubelet without one has allocated nothing.
pub(super) fn read(checkpoint: &Path) -> Result<HeldSlots, String> {
    match fs::read(checkpoint) {
        Ok(text) => held_slots(&text).map_err(|why| why.to_string()),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(HeldSlots::new()),
        Err(why) => Err(why.to_string()),
    }
}

fn held_slots(text: &[u8]) -> serde_json::Result<HeldSlots> {
    let mut held = HeldSlots::new();
    for entry in kubelet_checkpoint::entries::<Entry>(text)? {
        if entry.resource == keys::RESOURCE {
            let ids = entry.devices.iter().flat_map(BTreeMap::values).flatten();
            held.extend(ids.filter_map(|id| Some((slot_number(id)?, entry.pod.clone()))));
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests;
