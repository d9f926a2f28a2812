//! One scan of every GPU by NVML.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
use nvml_wrapper::{Device, Nvml};

use super::driver::{Condition, Gpu, ScannedGpu};
use super::health::{Fault, Recovery};
use super::instances;
use super::nvml::Mig;

/// Largest number of NVLinks of a GPU.
const LINKS: u32 = 18;
/// Words in the bit set of NUMA nodes: 256 nodes.
const NODE_WORDS: usize = 4;

/// `NVML_AFFINITY_SCOPE_NODE`.
const NODE_SCOPE: u32 = 0;

/// Scans every GPU. `sysfs`: where sysfs is mounted.
pub(super) fn scan_all(nvml: &Nvml, sysfs: &Path, mig: Mig) -> Result<Vec<ScannedGpu>, NvmlError> {
    let mut scanned = Vec::new();
    let mut ends: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for index in 0..nvml.device_count()? {
        let found =
            nvml.device_by_index(index).and_then(|device| scan(&device, index, sysfs, mig, &mut ends));
        let unidentified = |error| vec![ScannedGpu::Unidentified { index, why: fault(error) }];
        scanned.extend(found.unwrap_or_else(unidentified));
    }
    let addresses: BTreeMap<String, String> = scanned
        .iter()
        .filter_map(|found_gpu| match found_gpu {
            ScannedGpu::Known(gpu, _) => Some((gpu.uuid.clone(), gpu.pci.clone())),
            _ => None,
        })
        .collect();
    for found_gpu in &mut scanned {
        if let ScannedGpu::Known(gpu, _) = found_gpu {
            gpu.nvlink = peers(&gpu.uuid, &addresses, &ends);
        }
    }
    Ok(scanned)
}

/// Scans one GPU or its instances, and records in `ends` where its NVLinks lead. Instances have none.
fn scan(
    device: &Device<'_>,
    index: u32,
    sysfs: &Path,
    mig: Mig,
    ends: &mut BTreeMap<String, BTreeSet<String>>,
) -> Result<Vec<ScannedGpu>, NvmlError> {
    let uuid = device.uuid()?;
    let is_mig = match device.mig_mode() {
        Ok(mode) => mode.current != 0,
        Err(NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_)) => {
            false
        }
        // A GPU in MIG mode would be given as a whole one.
        Err(why) => return Err(why),
    };
    if is_mig && mig == Mig::Off {
        return Ok(vec![ScannedGpu::NotGiven { uuid, index, why: Fault::Mig }]);
    }
    let info = device.pci_info()?;
    // Version 2 of the call, of drivers from 510 on: its total contains what the driver reserves for itself, and no program
    // can allocate that. Of a GPU in MIG mode only privileged callers learn it.
    let memory = if is_mig { None } else { Some(device.memory_info()?) };
    let pci = address(info.domain, info.bus, info.device);
    if !is_mig {
        ends.insert(uuid.clone(), ends_of_links(device));
    }
    let gpu = Gpu {
        uuid,
        index,
        model: device.name()?,
        memory_bytes: memory.as_ref().map_or(0, |memory| memory.total.saturating_sub(memory.reserved)),
        memory_total_bytes: memory.map(|memory| memory.total),
        host_memory_bytes: 0,
        numa: numa_by_sysfs(sysfs, &pci).unwrap_or_else(|| numa_by_nvml(device)),
        pci,
        nvlink: Vec::new(),
        mig: None,
        healthy: true,
        unhealthy_reason: None,
    };
    let condition = condition(device);
    if is_mig {
        instances::scan(device, &gpu, &condition)
    } else {
        Ok(vec![ScannedGpu::Known(gpu, condition)])
    }
}

/// NUMA node by sysfs. The outer `None`: sysfs does not have the device. The inner `None`: the machine does not
/// report it.
fn numa_by_sysfs(sysfs: &Path, pci: &str) -> Option<Option<u32>> {
    let path = sysfs.join("bus/pci/devices").join(pci).join("numa_node");
    let text = std::fs::read_to_string(path).ok()?;
    Some(parse_numa(&text))
}

/// Reads the content of the file `numa_node`: -1 if the machine does not report it.
fn parse_numa(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

fn numa_by_nvml(device: &Device<'_>) -> Option<u32> {
    only_bit(&device.memory_affinity(NODE_WORDS, NODE_SCOPE).ok()?)
}

/// The number of the only set bit.
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

/// PCI addresses that a GPU's active NVLinks lead to; empty without NVLink.
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
            // There is no NVLink, or there are no further links.
            Err(_) => break,
        }
    }
    ends
}

/// The GPUs that a GPU reaches by NVLink: at the other end of a link, or behind a switch that both are linked to.
///
/// In a virtual machine the driver hides the switches and reports one address for all of them, ffff…. A link there
/// still leads to a switch. The best available assumption is that all GPUs of the machine share it.
fn peers(
    uuid: &str,
    addresses: &BTreeMap<String, String>,
    ends: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<String> {
    let none = BTreeSet::new();
    let own = ends.get(uuid).unwrap_or(&none);
    let is_peer = |(other, pci): &(&String, &String)| {
        let shares_switch = || ends.get(*other).is_some_and(|theirs| !theirs.is_disjoint(own));
        other.as_str() != uuid && (own.contains(*pci) || shares_switch())
    };
    addresses.iter().filter(is_peer).map(|(other, _)| other.clone()).collect()
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
            return Condition::Bad(fault(error));
        }
        // An older driver or GPU does not know recovery actions. The other answers are the only evidence then.
        Some(Ok(_) | Err(_)) | None => 0,
    };
    Recovery::from_code(code)
        .map_or(Condition::Good, |recovery| Condition::Bad(Fault::NeedsRecovery(recovery)))
}

pub(super) fn fault(error: NvmlError) -> Fault {
    match error {
        NvmlError::GpuLost => Fault::Lost,
        NvmlError::ResetRequired => Fault::NeedsRecovery(Recovery::Reset),
        other => Fault::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
