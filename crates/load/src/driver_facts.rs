//! What the driver reports about itself and a device, without a context.

use serde::{Deserialize, Serialize};
use sluice_driver_api::types::{CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_MPS_ENABLED};

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
    /// CU_COMPUTEMODE: 0 default, 2 prohibited, 3 exclusive to one process.
    pub compute_mode: i32,
    /// Whether this process would be a client of an MPS server; `None` if the driver does not report it.
    pub mps: Option<bool>,
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
            compute_mode: number(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)?,
            mps: flag(CU_DEVICE_ATTRIBUTE_MPS_ENABLED),
        })
    }
}
