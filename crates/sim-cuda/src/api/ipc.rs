//! Memory of other processes. A handle has the number of the exporting process, its descriptor, and the length.

pub(crate) use super::vmm::*;
// Functions that differ in name only.
pub(crate) use self::cuIpcOpenMemHandle_v2 as cuIpcOpenMemHandle;

use super::memory::address;
use crate::border::{Ptr, Status};
use crate::state::context::current;
use crate::state::driver::{driver, driver_for_unsafe_call};
use crate::state::ipc::Export;
use crate::state::memory::Origin;
use sluice_driver_api::types::*;

pub(crate) fn cuIpcGetMemHandle(out: Ptr<CUipcMemHandle>, pointer: CUdeviceptr) -> Status {
    let driver = driver_for_unsafe_call()?;
    current()?.synchronize()?;
    let Export { pid, descriptor, len } = driver.memory.export(address(pointer)?)?;
    let mut reserved = [0; 64];
    reserved[..4].copy_from_slice(&pid.to_le_bytes());
    reserved[4..8].copy_from_slice(&descriptor.to_le_bytes());
    reserved[8..16].copy_from_slice(&len.to_le_bytes());
    out.write(CUipcMemHandle { reserved })
}

pub(crate) fn cuIpcOpenMemHandle_v2(out: Ptr<CUdeviceptr>, handle: CUipcMemHandle, _flags: c_uint) -> Status {
    let driver = driver_for_unsafe_call()?;
    let [a, b, c, d, e, f, g, h, len @ ..] = handle.reserved;
    let len = len.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
    let (pid, descriptor) = (u32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h]));
    out.write(driver.memory.import(&*current()?, Export { pid, descriptor, len })? as u64)
}

pub(crate) fn cuIpcCloseMemHandle(pointer: CUdeviceptr) -> Status {
    current()?.synchronize()?;
    driver()?.memory.release(address(pointer)?, |origin| origin == Origin::Imported)
}
