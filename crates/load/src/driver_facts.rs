//! What the driver reports about itself and a device, without a context.

use serde::{Deserialize, Serialize};
use sluice_driver_api::types::{
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
    CU_DEVICE_ATTRIBUTE_MPS_ENABLED, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
};

use crate::driver::{Driver, Error};

/// The driver's reports. They do not prove that a feature works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverFacts {
    /// Version of the CUDA API: 1000 × major + 10 × minor.
    pub cuda: i32,
    /// Devices visible to this process.
    pub devices: i32,
    /// Name of the device.
    pub name: String,
    /// Its UUID, as NVML writes it.
    pub uuid: String,
    /// Its compute capability.
    pub capability: (i32, i32),
    /// CU_COMPUTEMODE: 0 default, 2 prohibited, 3 exclusive to one process.
    pub compute_mode: i32,
    /// Whether this process would be a client of an MPS server; `None` if the driver does not report it.
    pub mps: Option<bool>,
    /// Whether streams can wait for words in memory; `None` if the driver does not report the attribute any more.
    pub memory_ops: Option<bool>,
    /// Whether memory that this process cannot write can be registered; `None` if the driver does not report it.
    pub read_only_registration: Option<bool>,
}

impl DriverFacts {
    /// Queries the driver about device `ordinal`.
    ///
    /// # Errors
    /// The driver's errors, except for the optional attributes.
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
