//! One look at every GPU by NVML.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
use nvml_wrapper::{Device, Nvml};

use super::health::{Recovery, Sickness};
use super::source::{Condition, Gpu, Sighting};

/// NVLinks that a GPU may have.
const LINKS: u32 = 18;
/// Words of NUMA nodes that are asked for: 256 nodes.
const NODE_WORDS: usize = 4;

/// `NVML_AFFINITY_SCOPE_NODE`.
const NODE_SCOPE: u32 = 0;

/// What a look needs besides NVML.
pub(super) struct Probe<'a> {
    /// Where sysfs is mounted.
    pub(super) sysfs: &'a Path,
}

/// Looks at every GPU.
///
/// # Errors
/// Not even their number could be found out.
pub(super) fn sight_all(nvml: &Nvml, probe: &Probe<'_>) -> Result<Vec<Sighting>, NvmlError> {
    let mut sightings = Vec::new();
    let mut ends: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for index in 0..nvml.device_count()? {
        let looked = nvml.device_by_index(index).and_then(|device| probe.sight(&device, index, &mut ends));
        sightings.push(looked.unwrap_or_else(|error| Sighting::Mute { index, why: sickness(error) }));
    }
    let places: BTreeMap<String, String> = sightings
        .iter()
        .filter_map(|sighting| match sighting {
            Sighting::Known(gpu, _) => Some((gpu.uuid.clone(), gpu.pci.clone())),
            _ => None,
        })
        .collect();
    for sighting in &mut sightings {
        if let Sighting::Known(gpu, _) = sighting {
            gpu.nvlink = peers(&gpu.uuid, &places, &ends);
        }
    }
    Ok(sightings)
}

impl Probe<'_> {
    /// Looks at one GPU; notes in `ends` where its NVLinks lead.
    ///
    /// # Errors
    /// It did not say who it is.
    fn sight(
        &self,
        device: &Device<'_>,
        index: u32,
        ends: &mut BTreeMap<String, BTreeSet<String>>,
    ) -> Result<Sighting, NvmlError> {
        let uuid = device.uuid()?;
        if device.mig_mode().is_ok_and(|mode| mode.current != 0) {
            return Ok(Sighting::Mig { uuid, index });
        }
        let place = device.pci_info()?;
        let pci = address(place.domain, place.bus, place.device);
        ends.insert(uuid.clone(), ends_of_links(device));
        let gpu = Gpu {
            uuid,
            index,
            model: device.name()?,
            memory_bytes: device.memory_info()?.total,
            numa: self.numa_by_sysfs(&pci).unwrap_or_else(|| numa_by_nvml(device)),
            pci,
            nvlink: Vec::new(),
        };
        Ok(Sighting::Known(gpu, condition(device)))
    }

    /// NUMA node by sysfs; none if sysfs does not have the device, none within that if the machine does not say.
    fn numa_by_sysfs(&self, pci: &str) -> Option<Option<u32>> {
        let path = self.sysfs.join("bus/pci/devices").join(pci).join("numa_node");
        let text = std::fs::read_to_string(path).ok()?;
        Some(parse_numa(&text))
    }
}

/// What is in the file `numa_node`: -1 for a machine that does not say.
fn parse_numa(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

fn numa_by_nvml(device: &Device<'_>) -> Option<u32> {
    only_bit(&device.memory_affinity(NODE_WORDS, NODE_SCOPE).ok()?)
}

/// The number of the only bit that is set.
fn only_bit(words: &[std::ffi::c_ulong]) -> Option<u32> {
    let mut bits = (0u32..).zip(words).filter(|(_, word)| **word != 0);
    let (index, word) = bits.next()?;
    let is_only = bits.next().is_none() && word.is_power_of_two();
    is_only.then(|| index * std::ffi::c_ulong::BITS + word.trailing_zeros())
}

/// A PCI address as sysfs writes it; the function of a GPU is 0.
fn address(domain: u32, bus: u32, device: u32) -> String {
    format!("{domain:04x}:{bus:02x}:{device:02x}.0")
}

/// The places that a GPU's active NVLinks lead to; empty where there is no NVLink.
fn ends_of_links(device: &Device<'_>) -> BTreeSet<String> {
    let mut ends = BTreeSet::new();
    for link in 0..LINKS {
        let link = device.link_wrapper_for(link);
        match link.is_active() {
            Ok(true) => {
                if let Ok(end) = link.remote_pci_info() {
                    ends.insert(address(end.domain, end.bus, end.device));
                }
            }
            Ok(false) => {}
            // No NVLink at all, or no more links than these.
            Err(_) => break,
        }
    }
    ends
}

/// The GPUs that a GPU reaches by NVLink: at the other end of a link, or behind a switch that both are linked to.
///
/// In a virtual machine the driver hides switches and gives all of them one address, ffff…: its links still lead to a switch, and
/// that the GPUs of the machine hang on the same one is the best that can be said.
fn peers(
    uuid: &str,
    places: &BTreeMap<String, String>,
    ends: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<String> {
    let none = BTreeSet::new();
    let own = ends.get(uuid).unwrap_or(&none);
    let is_peer = |(other, place): &(&String, &String)| {
        let shares_switch = || ends.get(*other).is_some_and(|theirs| !theirs.is_disjoint(own));
        other.as_str() != uuid && (own.contains(*place) || shares_switch())
    };
    places.iter().filter(is_peer).map(|(other, _)| other.clone()).collect()
}

fn condition(device: &Device<'_>) -> Condition {
    let field = FieldId(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION);
    let value = match device.field_values_for(&[field]) {
        Ok(values) => values.into_iter().next().map(|value| value.and_then(|sample| sample.value)),
        Err(error) => Some(Err(error)),
    };
    let code = match value {
        Some(Ok(SampleValue::U32(code))) => u64::from(code),
        Some(Ok(SampleValue::U64(code))) => code,
        Some(Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired))) => {
            return Condition::Bad(sickness(error));
        }
        // An older driver or an older GPU: that it answered everything else is all there is to know.
        Some(Ok(_) | Err(_)) | None => 0,
    };
    Recovery::from_code(code)
        .map_or(Condition::Good, |recovery| Condition::Bad(Sickness::NeedsRecovery(recovery)))
}

fn sickness(error: NvmlError) -> Sickness {
    match error {
        NvmlError::GpuLost => Sickness::Lost,
        NvmlError::ResetRequired => Sickness::NeedsRecovery(Recovery::Reset),
        other => Sickness::Failed(other.to_string()),
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
