//! Nodes that give their GPUs by claims (DRA): the devices of ResourceSlices as an inventory, and the shares of allocated claims as pods.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, ResourceClaim, ResourceSlice};
use sluice_placement::annotations::{Amount, keys, parse_quantity};
use sluice_placement::inventory::{Gpu, NodeInventory};
use sluice_placement::share_config::{DRIVER, MEMORY, MILLI, SEATS};

use crate::cluster_state::PodFacts;

const PCI: &str = "resource.kubernetes.io/pciBusID";

/// The GPUs of a node; `None` if it gives none by claims.
pub(crate) fn inventory(node: &str, slices: &[ResourceSlice]) -> Option<NodeInventory> {
    let devices: Vec<&Device> =
        devices(slices).filter(|(of, _)| *of == node).map(|(_, device)| device).collect();
    let seats = capacity(devices.first()?, SEATS).and_then(|seats| u32::try_from(seats).ok()).unwrap_or(0);
    let gpus = (0..).zip(&devices).map(|(index, device)| gpu(index, device));
    Some(NodeInventory::new(seats, gpus.collect()))
}

fn devices(slices: &[ResourceSlice]) -> impl Iterator<Item = (&str, &Device)> {
    slices.iter().filter(|slice| slice.spec.driver == DRIVER).flat_map(|slice| {
        let node = slice.spec.node_name.as_deref().unwrap_or_default();
        slice.spec.devices.iter().flatten().map(move |device| (node, device))
    })
}

fn gpu(index: u32, device: &Device) -> Gpu {
    let taints: Vec<&str> = device.taints.iter().flatten().map(|taint| taint.key.as_str()).collect();
    Gpu {
        uuid: uuid(device),
        index,
        model: attribute(device, "model").unwrap_or_default(),
        memory_bytes: capacity(device, MEMORY).unwrap_or(0),
        memory_total_bytes: None,
        host_memory_bytes: 0,
        numa: None,
        pci: attribute(device, PCI).unwrap_or_default(),
        nvlink: Vec::new(),
        mig: None,
        healthy: taints.is_empty(),
        unhealthy_reason: (!taints.is_empty()).then(|| format!("taint {}", taints.join(", "))),
    }
}

fn uuid(device: &Device) -> String {
    attribute(device, "uuid").unwrap_or_else(|| device.name.clone())
}

fn attribute(device: &Device, name: &str) -> Option<String> {
    device.attributes.as_ref()?.get(name)?.string.clone()
}

fn capacity(device: &Device, name: &str) -> Option<u64> {
    parse_quantity(&device.capacity.as_ref()?.get(name)?.value.0)
}

/// Each pod with shares, once for each of its GPUs, with the sum of its shares of that GPU as annotations would state it.
pub(crate) fn pods_with_shares(claims: &[ResourceClaim], slices: &[ResourceSlice]) -> Vec<PodFacts> {
    let uuids: BTreeMap<(&str, &str), String> =
        devices(slices).map(|(node, device)| ((node, device.name.as_str()), uuid(device))).collect();
    let mut sums: BTreeMap<(&str, &str), (u64, u64, PodFacts)> = BTreeMap::new();
    for claim in claims {
        let Some(status) = &claim.status else { continue };
        let reserved = status.reserved_for.iter().flatten().find(|user| user.resource == "pods");
        let allocated = status.allocation.as_ref().and_then(|allocation| allocation.devices.as_ref());
        let results = allocated.and_then(|devices| devices.results.as_ref()).into_iter().flatten();
        let Some(pod) = reserved else { continue };
        for result in results.filter(|result| result.driver == DRIVER) {
            let Some(gpu) = uuids.get(&(result.pool.as_str(), result.device.as_str())) else { continue };
            let consumed = |name: &str| parse_quantity(&result.consumed_capacity.as_ref()?.get(name)?.0);
            let facts = || PodFacts {
                namespace: claim.metadata.namespace.clone().unwrap_or_default(),
                name: pod.name.clone(),
                uid: format!("{}/{gpu}", pod.uid),
                annotations: BTreeMap::from([(keys::ASSIGNED_GPU.to_owned(), gpu.clone())]),
                node: Some(result.pool.clone()),
                phase: "Running".to_owned(),
                ..PodFacts::default()
            };
            let sum = sums.entry((&pod.uid, gpu)).or_insert_with(|| (0, 0, facts()));
            sum.0 += consumed(MILLI).unwrap_or(0);
            sum.1 += consumed(MEMORY).unwrap_or(0);
        }
    }
    let pods = sums.into_values().map(|(milli, memory, mut pod)| {
        let share = Amount::from_milli(milli).map(|share| (keys::QUOTA.to_owned(), share.to_string()));
        pod.annotations.extend(share);
        pod.annotations.insert(keys::MEMORY.to_owned(), memory.to_string());
        pod
    });
    pods.collect()
}

#[cfg(test)]
mod tests;
