//! Devices and their identities.

use super::session::{FIRST_HANDLE, info, info_at, socket, sockets};
use super::{Answer, Error, number, nvml, put, put_text};
use crate::border::Ptr;
use sluice_driver_api::types::{c_char, c_int, c_uint, c_void};
use sluice_sim::identity::uuid_text;

fn hand_out(ordinal: usize, out: Ptr<*mut c_void>) -> Answer {
    out.write_handle(FIRST_HANDLE + ordinal).map_err(|_| Error::InvalidArgument)
}

nvml! { once initialised:
    fn nvmlDeviceGetCount_v2(out: *mut c_uint) {
        put(out, number(sockets().len()))
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut *mut c_void) {
        let socket = sockets().into_iter().nth(index as usize).ok_or(Error::InvalidArgument)?;
        info_at(&socket)?;
        hand_out(index as usize, out)
    }

    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut *mut c_void) {
        let wanted = uuid.text().map_err(|_| Error::InvalidArgument)?;
        let is_it = |info: sluice_sim::client::GpuInfo| uuid_text(info.uuid) == wanted;
        let ordinal = sockets().iter().position(|socket| info_at(socket).is_ok_and(is_it));
        hand_out(ordinal.ok_or(Error::NotFound)?, out)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(place: *const c_char, out: *mut *mut c_void) {
        let wanted = place.text().ok().and_then(|text| text.parse().ok()).ok_or(Error::InvalidArgument)?;
        let is_it = |info: sluice_sim::client::GpuInfo| info.pci == wanted;
        let ordinal = sockets().iter().position(|socket| info_at(socket).is_ok_and(is_it));
        hand_out(ordinal.ok_or(Error::NotFound)?, out)
    }

    fn nvmlDeviceGetIndex(device: *mut c_void, out: *mut c_uint) {
        put(out, number(socket(device)?.0))
    }

    fn nvmlDeviceGetMinorNumber(device: *mut c_void, out: *mut c_uint) {
        put(out, number(socket(device)?.0))
    }

    fn nvmlDeviceGetName(device: *mut c_void, out: *mut c_char, size: c_uint) {
        put_text(out, &info(device)?.name, size)
    }

    fn nvmlDeviceGetUUID(device: *mut c_void, out: *mut c_char, size: c_uint) {
        put_text(out, &uuid_text(info(device)?.uuid), size)
    }

    fn nvmlDeviceGetCudaComputeCapability(device: *mut c_void, major: *mut c_int, minor: *mut c_int) {
        socket(device)?;
        put(major, 9)?;
        put(minor, 0)
    }
}
