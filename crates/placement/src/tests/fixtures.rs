//! Nodes and GPUs for tests.

use sluice_units::Share;

use crate::annotations::Amount;
use crate::demand::Demand;
use crate::inventory::{Gpu, NodeInventory};

pub(super) const GIB: u64 = 1 << 30;

/// A share of any GPU, in thousandths.
pub(super) fn share(milli: u32, memory_bytes: Option<u64>) -> Demand {
    Demand::new(Amount::Share(Share::from_ppm(milli * 1000).unwrap()), memory_bytes)
}

/// Several GPUs: this share, in thousandths, and 1 GiB on each.
pub(super) fn on_each(gpus: u32, milli: u32) -> Demand {
    Demand { gpus, ..share(milli, Some(GIB)) }
}

/// Whole GPUs of any kind.
pub(super) fn whole(gpus: u32) -> Demand {
    Demand::new(Amount::Whole(gpus), None)
}

pub(super) fn gpu(node: &str, index: u32) -> Gpu {
    Gpu {
        uuid: uuid(node, index),
        index,
        model: "NVIDIA H100 80GB HBM3".into(),
        memory_bytes: 80 * GIB,
        memory_total_bytes: None,
        host_memory_bytes: 0,
        numa: None,
        pci: format!("0000:{index:02x}:00.0"),
        nvlink: Vec::new(),
        mig: None,
        healthy: true,
        unhealthy_reason: None,
    }
}

pub(super) fn uuid(node: &str, index: u32) -> String {
    format!("GPU-{node}-{index}")
}

/// A node of equal GPUs.
pub(super) fn node(name: &str, gpus: u32) -> NodeInventory {
    NodeInventory::new(10, (0..gpus).map(|index| gpu(name, index)).collect())
}

/// Links every pair of each group of GPUs.
pub(super) fn link(inventory: &mut NodeInventory, groups: &[&[usize]]) {
    for group in groups {
        for &one in *group {
            let peers = group.iter().filter(|&&other| other != one);
            let uuids = peers.map(|&other| inventory.gpus[other].uuid.clone()).collect();
            inventory.gpus[one].nvlink = uuids;
        }
    }
}
