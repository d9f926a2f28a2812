//! Nodes and pods for tests.

use std::collections::BTreeMap;

use sluice_placement::annotations::keys;
use sluice_placement::inventory::{Gpu, NodeInventory};

use crate::cluster_state::{ClusterState, NodeFacts, PodFacts};

pub(crate) const GIB: u64 = 1 << 30;

/// A node of equal GPUs with 80 GiB each.
pub(crate) fn node(name: &str, gpus: u32) -> NodeFacts {
    let gpu = |index| Gpu {
        uuid: format!("GPU-{name}-{index}"),
        index,
        model: "NVIDIA H100".into(),
        memory_bytes: 80 * GIB,
        memory_total_bytes: None,
        host_memory_bytes: 0,
        numa: None,
        pci: format!("0000:{index:02x}:00.0"),
        nvlink: Vec::new(),
        mig: None,
        healthy: true,
        unhealthy_reason: None,
    };
    NodeFacts {
        name: name.to_owned(),
        inventory: Ok(NodeInventory::new(10, (0..gpus).map(gpu).collect())),
        is_cordoned: false,
        gives_gpus_by_claims: false,
    }
}

/// The GPU of a node in which a test changes something.
pub(crate) fn gpu_mut(node: &mut NodeFacts, index: usize) -> &mut Gpu {
    &mut node.inventory.as_mut().unwrap().gpus[index]
}

/// A pod of the namespace `default` that waits, with these annotations without their prefix.
pub(crate) fn pod(name: &str, annotations: &[(&str, &str)]) -> PodFacts {
    let annotations =
        annotations.iter().map(|(key, value)| (format!("sluice.dev/{key}"), (*value).to_owned()));
    PodFacts {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        annotations: annotations.collect::<BTreeMap<_, _>>(),
        scheduler: keys::SCHEDULER_NAME.to_owned(),
        phase: "Pending".to_owned(),
        ..PodFacts::default()
    }
}

/// The pod on these GPUs of a node.
pub(crate) fn running(pod: PodFacts, node: &str, gpus: &[u32]) -> PodFacts {
    let uuids: Vec<String> = gpus.iter().map(|index| format!("GPU-{node}-{index}")).collect();
    let mut pod = PodFacts { node: Some(node.to_owned()), phase: "Running".to_owned(), ..pod };
    pod.annotations.insert(keys::ASSIGNED_GPU.to_owned(), uuids.join(","));
    pod
}

pub(crate) fn cluster(nodes: Vec<NodeFacts>, pods: Vec<PodFacts>) -> ClusterState {
    ClusterState { nodes, pods }
}
