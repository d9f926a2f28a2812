//! The GPUs of a node: the value of the node annotation `sluice.dev/gpus`, written by the node agent and read by the
//! scheduler, and the node labels that follow from it.
//!
//! Readers ignore unknown fields, so that an agent may be newer than a scheduler. An absent field has the meaning that
//! it had before the field existed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::annotations::keys;

/// Version of the format that this code writes. It changes when old readers would misread the format, not when fields are
/// added.
pub const VERSION: u32 = 1;

/// Label of a node with at least one GPU: `true`.
pub const LABEL_PRESENT: &str = "sluice.dev/gpu.present";
/// Label: number of GPUs of the node, including unhealthy ones.
pub const LABEL_COUNT: &str = "sluice.dev/gpu.count";
/// Label: the model of the node's GPUs; `mixed` if they have several.
pub const LABEL_MODEL: &str = "sluice.dev/gpu.model";
/// Beginning of the name of a label that a node has for each model of its GPUs: `true`.
pub const LABEL_MODEL_PREFIX: &str = "sluice.dev/gpu.model.";

/// Value of [`LABEL_MODEL`] on a node with several models.
const MIXED: &str = "mixed";
/// Longest name of a label behind `sluice.dev/`, bytes.
const LONGEST_NAME: usize = 63;

/// The longest label value that Kubernetes accepts.
const LABEL_VALUE_MAX: usize = 63;

/// All GPUs of a node that can be shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInventory {
    /// Version of the format: [`VERSION`].
    pub version: u32,
    /// Device slots (`sluice.dev/gpu`) that the node offers for each healthy GPU: how many pods may share one.
    pub seats_per_gpu: u32,
    /// The GPUs, in the driver's order.
    pub gpus: Vec<Gpu>,
}

/// One GPU, or one instance of a GPU in MIG mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The driver's identity, `GPU-…`, of an instance `MIG-…`: stays the same over restarts, unlike `index`.
    pub uuid: String,
    /// Ordinal in the driver at the moment; an instance has that of its GPU.
    pub index: u32,
    /// Product name from the driver, such as `NVIDIA H200`.
    pub model: String,
    /// Device memory that pods may request, in bytes: without what the driver and the pods' contexts take.
    pub memory_bytes: u64,
    /// All device memory in bytes; none if it equals `memory_bytes`, or from an agent that did not know it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// Memory of the host for what leaves the GPU, in bytes; 0: no pod's memory may leave it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub host_memory_bytes: u64,
    /// NUMA node of the GPU; none if the machine has only one or does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
    /// PCI address, `domain:bus:device.function` in lower case as in `/sys/bus/pci/devices`.
    pub pci: String,
    /// UUIDs of the GPUs of this node that an active NVLink leads to directly.
    #[serde(default)]
    pub nvlink: Vec<String>,
    /// Of which GPU it is an instance; none if it is a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigInstance>,
    /// New pods may be placed on it.
    pub healthy: bool,
    /// The reason why not, in words; none while healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_reason: Option<String>,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// What an instance of a GPU in MIG mode is. It has memory and time of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigInstance {
    /// UUID of the GPU.
    pub parent: String,
    /// The driver's name for its size, such as `1g.10gb`.
    pub profile: String,
    /// Several pods may share it: the controls of its driver are proven there. Otherwise one pod gets it.
    pub is_shared: bool,
}

impl Gpu {
    /// Whether only one pod may have it.
    pub fn is_for_one_pod(&self) -> bool {
        self.mig.as_ref().is_some_and(|instance| !instance.is_shared)
    }

    /// All device memory in bytes.
    pub fn memory_total(&self) -> u64 {
        self.memory_total_bytes.unwrap_or(self.memory_bytes)
    }
}

impl NodeInventory {
    /// A node with these GPUs, in this code's format.
    pub fn new(seats_per_gpu: u32, gpus: Vec<Gpu>) -> Self {
        Self { version: VERSION, seats_per_gpu, gpus }
    }

    /// The value of the node annotation.
    pub fn to_annotation(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Reads the value of the node annotation.
    ///
    /// # Errors
    /// Not JSON, or a field that this format must have is absent or of another kind.
    pub fn from_annotation(value: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(value)
    }

    /// The GPU with this UUID.
    pub fn gpu(&self, uuid: &str) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == uuid)
    }

    /// Device slots that the node offers now: those of its healthy GPUs.
    pub fn device_slots(&self) -> u64 {
        let healthy = self.gpus.iter().filter(|gpu| gpu.healthy).map(|_| u64::from(self.seats_per_gpu));
        healthy.sum()
    }

    /// The node labels that follow from this inventory. `None`: the node must not have the label.
    ///
    /// [`LABEL_PRESENT`] is set and never removed: agents run on nodes with this label. An agent that removed it while
    /// the GPUs are absent would not run there when they return.
    pub fn labels(&self) -> BTreeMap<String, Option<String>> {
        let is_present = !self.gpus.is_empty();
        let models: BTreeSet<String> = self.gpus.iter().filter_map(|gpu| label_value(&gpu.model)).collect();
        let model = if models.len() > 1 { Some(MIXED.to_owned()) } else { models.first().cloned() };
        let mut labels = BTreeMap::from([
            (LABEL_COUNT.to_owned(), is_present.then(|| self.gpus.len().to_string())),
            (LABEL_MODEL.to_owned(), model),
        ]);
        let present = is_present.then(|| LABEL_PRESENT.to_owned());
        let of_models = models.iter().map(|model| model_label(model));
        labels.extend(of_models.chain(present).map(|label| (label, Some("true".to_owned()))));
        labels
    }
}

/// The label that nodes with a GPU of this model have. `None` if no label can be made of the name.
pub fn label_of_model(model: &str) -> Option<String> {
    label_value(model).map(|value| model_label(&value))
}

fn model_label(model: &str) -> String {
    let longest = LONGEST_NAME - LABEL_MODEL_PREFIX.len() + keys::PREFIX.len();
    let model = model.get(..longest).unwrap_or(model);
    format!("{LABEL_MODEL_PREFIX}{}", model.trim_end_matches(|end: char| !end.is_ascii_alphanumeric()))
}

/// A text as a label value: runs of characters that Kubernetes does not allow become one `-`, and the ends are trimmed to
/// letters and digits.
///
/// None if nothing is left. `NVIDIA H100 80GB HBM3` becomes `NVIDIA-H100-80GB-HBM3`.
pub fn label_value(text: &str) -> Option<String> {
    let mut value = String::new();
    for character in text.chars() {
        if character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.') {
            value.push(character);
        } else if !value.ends_with('-') {
            value.push('-');
        }
    }
    let value = value.trim_start_matches(|end: char| !end.is_ascii_alphanumeric());
    let value = value.get(..LABEL_VALUE_MAX).unwrap_or(value);
    let value = value.trim_end_matches(|end: char| !end.is_ascii_alphanumeric());
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests;
