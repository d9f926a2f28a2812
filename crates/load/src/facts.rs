//! What the driver says of itself and of a device, without a context.

use serde::{Deserialize, Serialize};
use sluice_driver_api::types::{
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
    CU_DEVICE_ATTRIBUTE_MPS_ENABLED, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
};

use crate::driver::{Driver, Error};

/// Answers of the driver. None of it is proof of anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Version of the CUDA API: 1000 × major + 10 × minor.
    pub cuda: i32,
    /// Devices that this process sees.
    pub devices: i32,
    /// Name of the device.
    pub name: String,
    /// Its UUID, as NVML writes it.
    pub uuid: String,
    /// Its compute capability.
    pub capability: (i32, i32),
    /// CU_COMPUTEMODE: 0 default, 2 prohibited, 3 exclusive to one process.
    pub compute_mode: i32,
    /// This process would be a client of an MPS server; nothing if the driver cannot say.
    pub mps: Option<bool>,
    /// Streams can wait for words in memory; nothing where the attribute is no longer answered.
    pub memory_ops: Option<bool>,
    /// Memory that this process cannot write can be registered.
    pub read_only_registration: Option<bool>,
}

impl Facts {
    /// Asks the driver about device `ordinal`.
    ///
    /// # Errors
    /// Those of the driver; attributes that it does not know are not among them.
    pub fn of(driver: &Driver, ordinal: i32) -> Result<Self, Error> {
        let number = |attribute| driver.attribute(ordinal, attribute);
        let flag = |attribute| number(attribute).ok().map(|value| value != 0);
        Ok(Self {
            cuda: driver.cuda_version()?,
            devices: driver.device_count()?,
            name: driver.device_name(ordinal)?,
            uuid: driver.device_uuid(ordinal)?,
            capability: (
                number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            compute_mode: number(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)?,
            mps: flag(CU_DEVICE_ATTRIBUTE_MPS_ENABLED),
            memory_ops: flag(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1),
            read_only_registration: flag(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED),
        })
    }
}
