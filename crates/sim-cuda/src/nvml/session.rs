//! Initialisation, device handles, and queries of the library and the driver as a whole.

use super::{Answer, Error, nvml, put, put_text};
use crate::border::Ptr;
pub(super) use crate::state::driver::named_sockets as sockets;
use sluice_driver_api::types::{c_char, c_int, c_uint, c_void};
use sluice_sim::client::{self, GpuInfo};
use sluice_sim::fault::Effect;
use sluice_sim::ledger::Ledger;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The handle of device 0. The handles of the other devices follow it.
pub(super) const FIRST_HANDLE: usize = 0x6d70;

/// Calls of nvmlInit minus calls of nvmlShutdown.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Opens a session if a GPU answers; without one there is no driver.
fn open() -> Answer {
    if !sockets().iter().any(|socket| client::gpu_info(socket).is_ok()) {
        return Err(Error::DriverNotLoaded);
    }
    OPEN.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Fails before nvmlInit and after nvmlShutdown.
pub(super) fn is_open() -> Answer {
    if OPEN.load(Ordering::Relaxed) == 0 { Err(Error::Uninitialized) } else { Ok(()) }
}

/// Ordinal and socket of a handle.
pub(super) fn socket(device: Ptr<c_void>) -> Result<(usize, PathBuf), Error> {
    let ordinal = device.address().checked_sub(FIRST_HANDLE).ok_or(Error::InvalidArgument)?;
    let socket = sockets().into_iter().nth(ordinal).ok_or(Error::InvalidArgument)?;
    Ok((ordinal, socket))
}

/// A GPU's properties, unless it is lost.
pub(super) fn info(device: Ptr<c_void>) -> Result<GpuInfo, Error> {
    info_at(&socket(device)?.1)
}

pub(super) fn info_at(socket: &std::path::Path) -> Result<GpuInfo, Error> {
    let info = client::gpu_info(socket).map_err(|_| Error::GpuIsLost)?;
    if info.fault.is_some_and(|fault| fault.effect == Effect::Lost) {
        return Err(Error::GpuIsLost);
    }
    Ok(info)
}

/// A GPU's ledger, unless it is lost.
pub(super) fn ledger(device: Ptr<c_void>) -> Result<Ledger, Error> {
    info(device)?;
    client::ledger(&socket(device)?.1).map_err(|_| Error::GpuIsLost)
}

nvml! {
    fn nvmlInit_v2() {
        open()
    }

    fn nvmlInit() {
        open()
    }

    fn nvmlInitWithFlags(_flags: c_uint) {
        open()
    }

    fn nvmlShutdown() {
        let less = |open: usize| open.checked_sub(1);
        OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map_err(|_| Error::Uninitialized).map(drop)
    }

    fn nvmlSystemGetNVMLVersion(out: *mut c_char, size: c_uint) {
        put_text(out, "13.580.159.04", size)
    }

    fn nvmlSystemGetCudaDriverVersion(out: *mut c_int) {
        put(out, 13_000)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) {
        put(out, 13_000)
    }
}

nvml! { once initialised:
    fn nvmlSystemGetDriverVersion(out: *mut c_char, size: c_uint) {
        let info = sockets().iter().find_map(|socket| client::gpu_info(socket).ok());
        put_text(out, &info.ok_or(Error::DriverNotLoaded)?.driver_version, size)
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(error: c_uint) -> *const c_char {
    let text = match error {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        15 => c"GPU is lost",
        25 => c"Argument Version Mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
