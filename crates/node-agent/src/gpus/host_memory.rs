//! Memory of the host for what leaves the GPUs: the same amount for each GPU.
//!
//! Instances of GPUs in MIG mode get none: memory that leaves an instance was not tried on hardware.

use std::str::FromStr;

use sluice_placement::annotations::parse_quantity;
use sluice_placement::inventory::NodeInventory;

/// Bytes of the host for each GPU; 0: no memory leaves a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostMemory(pub u64);

impl HostMemory {
    /// The inventory with this memory of the host.
    #[must_use]
    pub(super) fn provided_to(self, mut inventory: NodeInventory) -> NodeInventory {
        for gpu in inventory.gpus.iter_mut().filter(|gpu| gpu.mig.is_none()) {
            gpu.host_memory_bytes = self.0;
        }
        inventory
    }
}

/// A Kubernetes quantity of bytes.
impl FromStr for HostMemory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes =
            parse_quantity(text).ok_or("expected a Kubernetes quantity of bytes, such as 128Gi or 0")?;
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use sluice_placement::inventory::{Gpu, MigInstance};

    use super::*;
    use crate::gpus::fake;

    #[test]
    fn each_gpu_has_the_memory_and_no_instance_of_one() {
        let parent = fake::gpu(0).uuid;
        let mig = Some(MigInstance { parent, profile: "1g.10gb".into(), is_shared: true });
        let instance = Gpu { uuid: "MIG-0".into(), mig, ..fake::gpu(0) };
        let inventory = NodeInventory::new(10, vec![fake::gpu(1), instance, fake::gpu(2)]);
        let provided = "64Gi".parse::<HostMemory>().unwrap().provided_to(inventory.clone());
        let bytes: Vec<u64> = provided.gpus.iter().map(|gpu| gpu.host_memory_bytes).collect();
        assert_eq!(bytes, [64 << 30, 0, 64 << 30]);
        assert_eq!(HostMemory::default().provided_to(inventory.clone()), inventory);
        assert!("lots".parse::<HostMemory>().unwrap_err().contains("such as 128Gi"));
    }
}
