//! The instances of a GPU in MIG mode, by NVML.

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use sluice_placement::inventory::MigInstance;

use super::driver::{Condition, Gpu, ScannedGpu};
use super::health::Fault;
use super::probe::fault;

/// Between the GPU's name and the profile in the name of an instance: `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
const PROFILE_FOLLOWS: &str = " MIG ";

/// The instances of this GPU. They have its place and its condition, because NVML reports neither of an instance.
pub(super) fn scan(
    device: &Device<'_>,
    gpu: &Gpu,
    condition: &Condition,
) -> Result<Vec<ScannedGpu>, NvmlError> {
    let mut found = Vec::new();
    for number in 0..device.mig_device_count()? {
        match device.mig_device_by_index(number) {
            Ok(instance) => found.push(scan_one(&instance, gpu, condition)?),
            // The highest number, and not how many there are, is known in advance.
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => {}
            Err(why) => return Err(why),
        }
    }
    if found.is_empty() {
        let (uuid, index) = (gpu.uuid.clone(), gpu.index);
        found.push(ScannedGpu::NotGiven { uuid, index, why: Fault::NoInstances });
    }
    Ok(found)
}

/// One that cannot be queried concerns no other one.
fn scan_one(instance: &Device<'_>, gpu: &Gpu, condition: &Condition) -> Result<ScannedGpu, NvmlError> {
    let uuid = instance.uuid()?;
    let queried = query(instance, uuid.clone(), gpu);
    let not_given = |why| ScannedGpu::NotGiven { uuid, index: gpu.index, why };
    Ok(match queried {
        Ok(Some(instance)) => ScannedGpu::Known(instance, condition.clone()),
        Ok(None) => not_given(Fault::SharedMemory),
        Err(why) => not_given(fault(why)),
    })
}

/// The instance; `None` if others use its memory, too.
fn query(instance: &Device<'_>, uuid: String, gpu: &Gpu) -> Result<Option<Gpu>, NvmlError> {
    let slices = instance.attributes()?;
    // The memory is the GPU instance's. With several compute instances in it, it would be promised several times.
    if slices.compute_instance_slice_count < slices.gpu_instance_slice_count {
        return Ok(None);
    }
    let (model, memory) = (instance.name()?, instance.memory_info()?);
    let profile = model.rsplit_once(PROFILE_FOLLOWS).map_or("", |(_, profile)| profile).to_owned();
    Ok(Some(Gpu {
        uuid,
        model,
        memory_bytes: memory.total.saturating_sub(memory.reserved),
        memory_total_bytes: Some(memory.total),
        host_memory_bytes: 0,
        mig: Some(MigInstance { parent: gpu.uuid.clone(), profile, is_shared: false }),
        ..gpu.clone()
    }))
}
