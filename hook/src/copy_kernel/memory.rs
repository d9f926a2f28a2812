//! Whether both ends of a copy are memory that a kernel of the current context may use.
//!
//! The driver is asked each time: no memory of an earlier answer can be wrong after the program has freed or unregistered it.

use std::ffi::c_void;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;

use super::counts::Refusal;
use super::plain_copy::PlainCopy;
use crate::{gpu, real};

/// What the driver reports of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Place {
    kind: CUmemorytype,
    is_managed: c_uint,
    device: c_int,
    /// Where kernels of the current context find the address; 0 if they cannot.
    device_address: CUdeviceptr,
    /// The allocation that contains it.
    begins: u64,
    length: u64,
    buffer: u64,
}

impl Place {
    fn at(address: CUdeviceptr) -> Option<Self> {
        let mut place = Self::default();
        let mut attributes = [
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            CU_POINTER_ATTRIBUTE_BUFFER_ID,
        ];
        let mut data: [*mut c_void; 7] = [
            (&raw mut place.kind).cast(),
            (&raw mut place.is_managed).cast(),
            (&raw mut place.device).cast(),
            (&raw mut place.device_address).cast(),
            (&raw mut place.begins).cast(),
            (&raw mut place.length).cast(),
            (&raw mut place.buffer).cast(),
        ];
        let ask = real::table().cuPointerGetAttributes?;
        // SAFETY: each pointer is writable for its attribute's type (`is_managed` for the larger of the two that drivers use); any address
        // may be queried.
        let asked = unsafe { ask(7, attributes.as_mut_ptr(), data.as_mut_ptr(), address) };
        (asked == CUresult::SUCCESS).then_some(place)
    }

    /// Memory of this kind that kernels find at the same address, and not managed.
    fn is_plain(&self, kind: CUmemorytype, address: CUdeviceptr) -> bool {
        self.kind == kind && self.is_managed == 0 && self.device_address == address
    }
}

/// Refuses a copy unless one end is pinned host memory, the other one memory of the current device, and both are whole in one allocation.
pub(super) fn check(copy: PlainCopy) -> Result<(), Refusal> {
    let device = gpu::current_device().ok_or(Refusal::Memory)?;
    let to = whole(copy.to, copy.bytes).ok_or(Refusal::Memory)?;
    let from = whole(copy.from, copy.bytes).ok_or(Refusal::Memory)?;
    let is_pair = |host: &Place, host_at, on_device: &Place, device_at| {
        host.is_plain(CU_MEMORYTYPE_HOST, host_at)
            && on_device.is_plain(CU_MEMORYTYPE_DEVICE, device_at)
            && on_device.device == device
    };
    if is_pair(&from, copy.from, &to, copy.to) || is_pair(&to, copy.to, &from, copy.from) {
        Ok(())
    } else {
        Err(Refusal::Memory)
    }
}

/// What the driver reports of `bytes` bytes that lie in one allocation.
fn whole(address: CUdeviceptr, bytes: usize) -> Option<Place> {
    let place = Place::at(address)?;
    let end = address.checked_add(bytes as u64)?;
    let is_in_range = place.begins <= address && end <= place.begins.checked_add(place.length)?;
    if place.length > 0 {
        return is_in_range.then_some(place);
    }
    // The driver reports no range for some registered memory.
    let last = Place::at(end - 1)?;
    let is_one = place.buffer != 0 && last.buffer == place.buffer && last.device_address == end - 1;
    is_one.then_some(place)
}
