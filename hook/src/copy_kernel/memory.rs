//! Whether both ends of a copy are memory that a kernel of the current context may use.
//!
//! The driver is asked each time: no memory of an earlier answer can be wrong after the program has freed or unregistered it.

use std::ffi::c_void;

use sluice_driver_api::CUresult;
use sluice_driver_api::types::*;

use super::counts::Refusal;
use super::plain_copy::PlainCopy;
use crate::{gpu, real};

/// `CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ`: kernels may read the memory and not write it.
const READ_ONLY: c_uint = 1;

/// What the driver reports of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Place {
    /// The context that allocated or registered it; 0 if it belongs to none.
    context: u64,
    kind: CUmemorytype,
    is_managed: c_uint,
    device: c_int,
    /// Where kernels of the current context find the address; 0 if they cannot.
    device_address: CUdeviceptr,
    /// The allocation that contains it, or the reserved addresses.
    begins: u64,
    length: u64,
    buffer: u64,
    /// Memory is mapped there.
    is_mapped: c_uint,
    access: c_uint,
}

impl Place {
    fn at(address: CUdeviceptr) -> Option<Self> {
        let mut place = Self::default();
        let mut attributes = [
            CU_POINTER_ATTRIBUTE_CONTEXT,
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            CU_POINTER_ATTRIBUTE_BUFFER_ID,
            CU_POINTER_ATTRIBUTE_MAPPED,
            CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
        ];
        let mut data: [*mut c_void; 10] = [
            (&raw mut place.context).cast(),
            (&raw mut place.kind).cast(),
            (&raw mut place.is_managed).cast(),
            (&raw mut place.device).cast(),
            (&raw mut place.device_address).cast(),
            (&raw mut place.begins).cast(),
            (&raw mut place.length).cast(),
            (&raw mut place.buffer).cast(),
            (&raw mut place.is_mapped).cast(),
            (&raw mut place.access).cast(),
        ];
        let ask = real::table().cuPointerGetAttributes?;
        // SAFETY: each pointer is writable for its attribute's type (`is_managed` and `is_mapped` for the larger of the two that drivers
        // use); any address may be queried.
        let asked = unsafe { ask(10, attributes.as_mut_ptr(), data.as_mut_ptr(), address) };
        (asked == CUresult::SUCCESS).then_some(place)
    }

    /// Memory of this kind that kernels find at the same address, of no other context, and not managed.
    fn is_plain(&self, kind: CUmemorytype, address: CUdeviceptr, context: u64) -> bool {
        self.kind == kind
            && self.is_managed == 0
            && self.device_address == address
            && (self.context == 0 || self.context == context)
    }
}

/// Refuses a copy unless one end is pinned host memory, the other one memory of the current device, both are whole in one allocation, and
/// kernels may write to the target.
pub(super) fn check(copy: PlainCopy, context: u64) -> Result<(), Refusal> {
    let device = gpu::current_device().ok_or(Refusal::Memory)?;
    let to = whole(copy.to, copy.bytes).ok_or(Refusal::Memory)?;
    let from = whole(copy.from, copy.bytes).ok_or(Refusal::Memory)?;
    let is_pair = |host: &Place, host_at, on_device: &Place, device_at| {
        host.is_plain(CU_MEMORYTYPE_HOST, host_at, context)
            && on_device.is_plain(CU_MEMORYTYPE_DEVICE, device_at, context)
            && on_device.device == device
            && on_device.is_mapped != 0
    };
    let is_known = is_pair(&from, copy.from, &to, copy.to) || is_pair(&to, copy.to, &from, copy.from);
    if is_known && to.access != READ_ONLY { Ok(()) } else { Err(Refusal::Memory) }
}

/// What the driver reports of `bytes` bytes, at least one, that lie in one allocation.
fn whole(address: CUdeviceptr, bytes: usize) -> Option<Place> {
    let last_address = address.checked_add((bytes as u64).checked_sub(1)?)?;
    let (first, last) = (Place::at(address)?, Place::at(last_address)?);
    // The range of reserved addresses says nothing about the memory that is mapped there: only a part may be mapped, or memory of two
    // devices. A mapping has 2 MiB at least, more than a copy, so there is none between the two bytes.
    let is_one = last.device_address == last_address
        && first == Place { device_address: first.device_address, ..last };
    let is_in_range = match first.length {
        // The driver reports no range for some registered memory.
        0 => first.buffer != 0,
        length => first.begins <= address && last_address - first.begins < length,
    };
    (is_one && is_in_range).then_some(first)
}
