//! Initialisation, addresses of functions, devices, errors.

pub(crate) use super::fallback::*;
// Functions that differ in name only.
pub(crate) use self::{cuDeviceGetUuid as cuDeviceGetUuid_v2, cuGetErrorName as cuGetErrorString};

use super::functions;
use crate::border::{Ptr, Status};
use crate::exports;
use crate::state::driver::{driver, init};
use sluice_driver_api::lookup_index;
use sluice_driver_api::types::*;
use sluice_sim::params;

/// The driver version that this library reports.
const VERSION: i32 = 13_000;

pub(crate) fn cuInit(flags: u32) -> Status {
    if flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    init()
}

pub(crate) fn cuGetErrorName(error: CUresult, text: Ptr<*const c_char>) -> Status {
    let name = error.c_name();
    text.write(name.map_or(std::ptr::null(), |name| name.as_ptr()))?;
    name.map(drop).ok_or(CUresult::ERROR_INVALID_VALUE)
}

pub(crate) fn cuGetExportTable(table: Ptr<*const c_void>, _id: Ptr<CUuuid>) -> Status {
    table.write_if_wanted(std::ptr::null());
    Err(CUresult::ERROR_NOT_FOUND)
}

pub(crate) fn cuDeviceGetName(name: Ptr<c_char>, len: c_int, device: CUdevice) -> Status {
    let device = driver()?.device(device)?;
    name.write_text(&device.gpu.info().name, usize::try_from(len).map_err(|_| CUresult::ERROR_INVALID_VALUE)?)
}

pub(crate) fn cuDeviceComputeCapability(major: Ptr<c_int>, minor: Ptr<c_int>, device: CUdevice) -> Status {
    driver()?.device(device)?;
    major.write(9)?;
    minor.write(0)
}

pub(crate) fn cuDeviceGetPCIBusId(id: Ptr<c_char>, len: c_int, device: CUdevice) -> Status {
    let device = driver()?.device(device)?;
    let text = format!("0000:{:02X}:00.0", device.ordinal + 1);
    id.write_text(&text, usize::try_from(len).map_err(|_| CUresult::ERROR_INVALID_VALUE)?)
}

pub(crate) fn cuDeviceGetByPCIBusId(device: Ptr<CUdevice>, id: Ptr<c_char>) -> Status {
    let id = id.text()?.to_uppercase();
    let bus = id.rsplit(':').nth(1).and_then(|bus| i32::from_str_radix(bus, 16).ok());
    let ordinal = bus.ok_or(CUresult::ERROR_INVALID_VALUE)? - 1;
    driver()?.device(ordinal)?;
    device.write(ordinal)
}

pub(crate) fn cuDeviceCanAccessPeer(can: Ptr<c_int>, device: CUdevice, peer: CUdevice) -> Status {
    driver()?.device(device)?;
    driver()?.device(peer)?;
    can.write(0)
}

pub(crate) fn cuDeviceGetP2PAttribute(
    value: Ptr<c_int>,
    _attribute: CUdevice_P2PAttribute,
    device: CUdevice,
    peer: CUdevice,
) -> Status {
    cuDeviceCanAccessPeer(value, device, peer)
}

pub(crate) fn cuDeviceGetAttribute(
    value: Ptr<c_int>,
    attribute: CUdevice_attribute,
    device: CUdevice,
) -> Status {
    let device = driver()?.device(device)?;
    if attribute == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    value.write(match attribute {
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => device.number() + 1,
        CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1
        | CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1
        | CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1
        | CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
        | CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR => i32::from(device.gpu.info().has_mem_ops),
        CU_DEVICE_ATTRIBUTE_COMPUTE_MODE => device.gpu.info().compute_mode,
        CU_DEVICE_ATTRIBUTE_MPS_ENABLED => i32::from(device.gpu.info().is_mps),
        _ => attribute_of_h200(attribute),
    })
}

/// Attributes of an H200 that programs query; others are 0.
fn attribute_of_h200(attribute: CUdevice_attribute) -> c_int {
    let sms = params::SMS.cast_signed();
    match attribute {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X
        | CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => 1_024,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X | CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65_535,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => 48 << 10,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 227 << 10,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => 228 << 10,
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK => 1 << 10,
        CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => 64 << 10,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => 65_536,
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE => 1_980_000,
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => 3_201_000,
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => 6_144,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => 60 << 20,
        CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT | CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT => 512,
        CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT => 32,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => sms,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => params::THREADS_PER_SM.cast_signed(),
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => params::BLOCKS_PER_SM.cast_signed(),
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 3,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | CU_DEVICE_ATTRIBUTE_ECC_ENABLED
        | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        | CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
        | CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED => 1,
        _ => 0,
    }
}

/// A version that is newer than any function of the table.
const ANY_VERSION: c_int = c_int::MAX;

fn find(name: &str, version: c_int, flags: u64) -> Result<usize, CUdriverProcAddressQueryResult> {
    let found = lookup_index(name, version, flags).and_then(exports::address);
    found.ok_or_else(|| match lookup_index(name, ANY_VERSION, flags) {
        Some(_) => CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
        None => CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    })
}

/// If `status` is not null, an unknown name is no error.
pub(crate) fn cuGetProcAddress_v2(
    name: Ptr<c_char>,
    function: Ptr<*mut c_void>,
    version: c_int,
    flags: u64,
    status: Ptr<CUdriverProcAddressQueryResult>,
) -> Status {
    if flags > 2 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    match find(&name.text()?, version, flags) {
        Ok(address) => {
            status.write_if_wanted(CU_GET_PROC_ADDRESS_SUCCESS);
            function.write_handle(address)
        }
        Err(why) => {
            function.write_handle(0)?;
            status.write_if_wanted(why);
            if status.is_null() { Err(CUresult::ERROR_NOT_FOUND) } else { Ok(()) }
        }
    }
}

fn total_memory(device: CUdevice) -> Result<u64, CUresult> {
    Ok(driver()?.device(device)?.gpu.info().memory_bytes)
}

functions! {
    fn cuDeviceTotalMem_v2(bytes: Ptr<usize>, device: CUdevice)
        = bytes.write(usize::try_from(total_memory(device)?).unwrap_or(usize::MAX));
    fn cuDeviceTotalMem(bytes: Ptr<c_uint>, device: CUdevice)
        = bytes.write(u32::try_from(total_memory(device)?).unwrap_or(u32::MAX));
    fn cuDeviceGet(device: Ptr<CUdevice>, ordinal: c_int) = device.write(driver()?.device(ordinal)?.number());
    fn cuDriverGetVersion(version: Ptr<c_int>) = version.write(VERSION);
    fn cuDeviceGetCount(count: Ptr<c_int>)
        = count.write(i32::try_from(driver()?.devices.len()).unwrap_or(i32::MAX));
    fn cuDeviceGetUuid(uuid: Ptr<CUuuid>, device: CUdevice)
        = uuid.write(CUuuid { bytes: driver()?.device(device)?.gpu.info().uuid });
    fn cuGetProcAddress(name: Ptr<c_char>, function: Ptr<*mut c_void>, version: c_int, flags: u64)
        = cuGetProcAddress_v2(name, function, version, flags, Ptr::null());
}
