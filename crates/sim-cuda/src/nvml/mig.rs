//! Instances of GPUs in MIG mode: each is a simulator of its own, which names its GPU.

use super::device::put_handle;
use super::session::{info, info_at, socket, sockets};
use super::{Error, nvml, put};
use crate::border::Ptr;
use sluice_driver_api::types::{c_uint, c_ulonglong, c_void};
use sluice_sim::client::GpuInfo;
use std::path::{Path, PathBuf};

/// Most instances of a GPU.
const INSTANCES: c_uint = 7;

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attributes {
    multiprocessors: c_uint,
    /// Copy engines, decoders, encoders, JPEG decoders and optical flow engines.
    shared_engines: [c_uint; 5],
    gpu_instance_slices: c_uint,
    compute_instance_slices: c_uint,
    memory_mib: c_ulonglong,
}

/// The UUID of the GPU of which this is an instance. A simulator that does not answer counts as a GPU.
fn parent(socket: &Path) -> Option<[u8; 16]> {
    info_at(socket).ok()?.instance.map(|instance| instance.parent)
}

/// Ordinals and sockets of all GPUs: instances are found through them.
pub(super) fn gpus() -> Vec<(usize, PathBuf)> {
    sockets().into_iter().enumerate().filter(|(_, socket)| parent(socket).is_none()).collect()
}

/// Ordinals of the instances of a GPU.
fn instances(gpu: [u8; 16]) -> Vec<usize> {
    let all = sockets().into_iter().enumerate();
    all.filter(|(_, socket)| parent(socket) == Some(gpu)).map(|(ordinal, _)| ordinal).collect()
}

/// Ordinals of the devices that are counted together with this one: all GPUs, or the instances of its GPU.
pub(super) fn siblings(ordinal: usize) -> Vec<usize> {
    match sockets().get(ordinal).and_then(|socket| parent(socket)) {
        Some(gpu) => instances(gpu),
        None => gpus().into_iter().map(|(ordinal, _)| ordinal).collect(),
    }
}

/// A GPU's properties. The driver knows some of whole GPUs only.
pub(super) fn whole_gpu(device: Ptr<c_void>) -> Result<GpuInfo, Error> {
    let info = info(device)?;
    if info.instance.is_some() { Err(Error::NotSupported) } else { Ok(info) }
}

nvml! { once initialised:
    fn nvmlDeviceGetMigMode(device: *mut c_void, current: *mut c_uint, pending: *mut c_uint) {
        if !whole_gpu(device)?.is_mig {
            return Err(Error::NotSupported);
        }
        put(current, 1)?;
        put(pending, 1)
    }

    fn nvmlDeviceGetMaxMigDeviceCount(device: *mut c_void, out: *mut c_uint) {
        put(out, if whole_gpu(device)?.is_mig { INSTANCES } else { 0 })
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(device: *mut c_void, index: c_uint, out: *mut *mut c_void) {
        let found = instances(whole_gpu(device)?.uuid);
        put_handle(*found.get(index as usize).ok_or(Error::NotFound)?, out)
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device: *mut c_void, out: *mut *mut c_void) {
        let wanted = info(device)?.instance.ok_or(Error::InvalidArgument)?.parent;
        let is_parent = |(_, socket): &(usize, PathBuf)| info_at(socket).is_ok_and(|info| info.uuid == wanted);
        put_handle(gpus().into_iter().find(is_parent).ok_or(Error::NotFound)?.0, out)
    }

    fn nvmlDeviceIsMigDeviceHandle(device: *mut c_void, out: *mut c_uint) {
        put(out, parent(&socket(device)?.1).is_some().into())
    }

    fn nvmlDeviceGetAttributes_v2(device: *mut c_void, out: *mut Attributes) {
        let info = info(device)?;
        let instance = info.instance.ok_or(Error::NotSupported)?;
        put(out, Attributes {
            multiprocessors: 16 * instance.compute_slices,
            shared_engines: [0; 5],
            gpu_instance_slices: instance.slices,
            compute_instance_slices: instance.compute_slices,
            memory_mib: info.memory_bytes >> 20,
        })
    }
}
