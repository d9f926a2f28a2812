//! Kubelet's checkpoint of the devices that it has allocated (pkg/kubelet/cm/devicemanager/checkpoint): a file in its folder of device
//! plugins, which it replaces whenever it has allocated or released devices.
//!
//! Its checksum is a hash of Go's printed structures, which only Go can compute. Kubelet writes the file atomically, and a damaged file
//! is not valid JSON.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Its name in kubelet's folder.
pub(crate) const FILE: &str = "kubelet_internal_checkpoint";

#[derive(Deserialize)]
#[serde(bound = "E: DeserializeOwned")]
struct Checkpoint<E> {
    #[serde(rename = "Data")]
    data: Data<E>,
}

#[derive(Deserialize)]
#[serde(bound = "E: DeserializeOwned")]
struct Data<E> {
    /// `null` if there are none. If the field itself is absent, the format is another one.
    #[serde(rename = "PodDeviceEntries", deserialize_with = "Option::deserialize")]
    entries: Option<Vec<E>>,
}

/// The entries, one for each container and resource. `E` has the fields that the caller needs.
pub(crate) fn entries<E: DeserializeOwned>(text: &[u8]) -> serde_json::Result<Vec<E>> {
    let checkpoint: Checkpoint<E> = serde_json::from_slice(text)?;
    Ok(checkpoint.data.entries.unwrap_or_default())
}
