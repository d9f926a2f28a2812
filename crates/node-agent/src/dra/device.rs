//! GPUs to the devices of a ResourceSlice. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCapacity, DeviceTaint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_placement::countable::WHOLE_MILLI;
use sluice_placement::inventory::{Gpu, NodeInventory};
use sluice_placement::share_config::{CRITICAL, MEMORY, MILLI, SEATS};

use crate::prepared_claims::DRIVER;

/// Key of the taint of an unhealthy GPU, below the driver's name.
const UNHEALTHY: &str = "unhealthy";
/// Key of the taint of a GPU on which no program can work.
const LOST: &str = "lost";

/// Attributes of an instance of a GPU in MIG mode alone. By the second one the chart's classes tell GPUs and instances apart.
const PARENT: &str = "parentUUID";
const PROFILE: &str = "profile";

/// The GPUs whose pods are to be evicted, by UUID, and since when.
pub(super) type LostSince = BTreeMap<String, Time>;
const MIB: u64 = 1 << 20;
/// Longest string of an attribute, bytes (`DeviceAttributeMaxValueLength`).
const LONGEST_STRING: usize = 64;

/// The name of a GPU's device: a DNS label that stays the same over restarts.
pub(super) fn device_name(uuid: &str) -> String {
    uuid.to_ascii_lowercase()
}

/// One device for each GPU. `pcie_roots`: the PCIe root of each GPU that has a known one, by UUID.
pub(super) fn devices(
    inventory: &NodeInventory,
    pcie_roots: &BTreeMap<String, String>,
    lost: &LostSince,
) -> Vec<Device> {
    let domains = nvlink_domains(inventory);
    let device = |gpu: &Gpu| Device {
        name: device_name(&gpu.uuid),
        allow_multiple_allocations: Some(true),
        attributes: Some(attributes(gpu, domains.get(&gpu.uuid), pcie_roots.get(&gpu.uuid))),
        capacity: Some(capacities(gpu, if gpu.is_for_one_pod() { 1 } else { inventory.seats_per_gpu })),
        taints: taints(gpu, lost.get(&gpu.uuid)),
        ..Device::default()
    };
    inventory.gpus.iter().map(device).collect()
}

fn attributes(
    gpu: &Gpu,
    domain: Option<&String>,
    pcie_root: Option<&String>,
) -> BTreeMap<String, DeviceAttribute> {
    let text = |value: &str| DeviceAttribute { string: Some(cut(value)), ..DeviceAttribute::default() };
    let mut all = BTreeMap::from([
        ("model".to_owned(), text(&gpu.model)),
        ("uuid".to_owned(), text(&gpu.uuid)),
        ("resource.kubernetes.io/pciBusID".to_owned(), text(&gpu.pci)),
    ]);
    if let Some(numa) = gpu.numa {
        let number = DeviceAttribute { int: Some(numa.into()), ..DeviceAttribute::default() };
        all.insert("numaNode".to_owned(), number);
    }
    if let Some(instance) = &gpu.mig {
        all.insert(PARENT.to_owned(), text(&instance.parent));
        all.insert(PROFILE.to_owned(), text(&instance.profile));
    }
    all.extend(domain.map(|domain| ("nvlinkDomain".to_owned(), text(domain))));
    all.extend(pcie_root.map(|root| ("resource.kubernetes.io/pcieRoot".to_owned(), text(root))));
    all
}

fn capacities(gpu: &Gpu, seats: u32) -> BTreeMap<String, DeviceCapacity> {
    let quantity = |number: u64| Quantity(number.to_string());
    let mebibytes = |number: u64| Quantity(format!("{number}Mi"));
    let memory = gpu.memory_bytes / MIB;
    let range = |min, max: Quantity, step| CapacityRequestPolicy {
        default: Some(max.clone()),
        valid_range: Some(CapacityRequestPolicyRange { min, max: Some(max), step: Some(step) }),
        valid_values: None,
    };
    // A share takes one seat: the only valid value, because a step above the capacity is refused where there is one seat.
    let one = CapacityRequestPolicy {
        default: Some(quantity(1)),
        valid_range: None,
        valid_values: Some(vec![quantity(1)]),
    };
    let none_or_one = CapacityRequestPolicy {
        default: Some(quantity(0)),
        valid_range: None,
        valid_values: Some(vec![quantity(0), quantity(1)]),
    };
    let of = |value, policy| DeviceCapacity { value, request_policy: Some(policy) };
    BTreeMap::from([
        (MILLI.to_owned(), of(quantity(WHOLE_MILLI), range(quantity(0), quantity(WHOLE_MILLI), quantity(1)))),
        (MEMORY.to_owned(), of(mebibytes(memory), range(mebibytes(1), mebibytes(memory), mebibytes(1)))),
        (SEATS.to_owned(), of(quantity(seats.into()), one)),
        (CRITICAL.to_owned(), of(quantity(1), none_or_one)),
    ])
}

/// An unhealthy GPU gets no new claim, and pods on it stay. Kubernetes evicts the pods of a lost one, each after the `tolerationSeconds` of
/// its claim. The reasons are in events, because a taint's value is a label.
fn taints(gpu: &Gpu, lost_since: Option<&Time>) -> Option<Vec<DeviceTaint>> {
    let taint = |key: &str, effect: &str, time_added| DeviceTaint {
        effect: effect.to_owned(),
        key: format!("{DRIVER}/{key}"),
        time_added,
        ..DeviceTaint::default()
    };
    let unhealthy = (!gpu.healthy).then(|| taint(UNHEALTHY, "NoSchedule", None));
    // The API server would set the present time whenever the slice is written, and the toleration would begin anew.
    let lost = lost_since.map(|since| taint(LOST, "NoExecute", Some(since.clone())));
    let all: Vec<_> = unhealthy.into_iter().chain(lost).collect();
    (!all.is_empty()).then_some(all)
}

/// The smallest UUID among the GPUs that reach each other by NVLinks, for each GPU that reaches another.
fn nvlink_domains(inventory: &NodeInventory) -> BTreeMap<String, String> {
    let mut domains: BTreeMap<String, String> = BTreeMap::new();
    for start in &inventory.gpus {
        if domains.contains_key(&start.uuid) {
            continue;
        }
        let mut reached = vec![start];
        let mut next = 0;
        while let Some(gpu) = reached.get(next) {
            next += 1;
            let is_linked =
                |other: &&Gpu| gpu.nvlink.contains(&other.uuid) || other.nvlink.contains(&gpu.uuid);
            let more: Vec<&Gpu> = inventory
                .gpus
                .iter()
                .filter(is_linked)
                .filter(|other| !reached.iter().any(|known| known.uuid == other.uuid))
                .collect();
            reached.extend(more);
        }
        if let Some(name) = reached.iter().map(|gpu| &gpu.uuid).min().filter(|_| reached.len() > 1).cloned() {
            domains.extend(reached.iter().map(|gpu| (gpu.uuid.clone(), name.clone())));
        }
    }
    domains
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(LONGEST_STRING);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
