//! Initialisation, and device handles.

use super::{Answer, Error};
use crate::border::Ptr;
use sluice_driver_api::types::c_void;
use sluice_sim::client::{self, GpuInfo};
use sluice_sim::fault::Effect;
use sluice_sim::ledger::Ledger;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Device handles are ordinals, from here on.
pub(super) const FIRST_HANDLE: usize = 0x6d70;

/// How often nvmlInit was called without nvmlShutdown.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The daemons that the environment names, one per device.
pub(super) fn sockets() -> Vec<PathBuf> {
    let sockets = std::env::var("SLUICE_SIM_SOCKET").unwrap_or_default();
    sockets.split(',').filter(|socket| !socket.is_empty()).map(PathBuf::from).collect()
}

/// What nvmlInit does: there is a driver if any of its GPUs answers.
pub(super) fn open() -> Answer {
    if !sockets().iter().any(|socket| client::gpu_info(socket).is_ok()) {
        return Err(Error::DriverNotLoaded);
    }
    OPEN.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// What nvmlShutdown does.
pub(super) fn close() -> Answer {
    let less = |open: usize| open.checked_sub(1);
    OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map_err(|_| Error::Uninitialized).map(drop)
}

/// Fails before nvmlInit and after nvmlShutdown.
pub(super) fn is_open() -> Answer {
    if OPEN.load(Ordering::Relaxed) == 0 { Err(Error::Uninitialized) } else { Ok(()) }
}

/// Ordinal and daemon of a handle.
pub(super) fn socket(device: Ptr<c_void>) -> Result<(usize, PathBuf), Error> {
    let ordinal = device.address().checked_sub(FIRST_HANDLE).ok_or(Error::InvalidArgument)?;
    let socket = sockets().into_iter().nth(ordinal).ok_or(Error::InvalidArgument)?;
    Ok((ordinal, socket))
}

/// A GPU's properties, unless it is lost.
pub(super) fn info(device: Ptr<c_void>) -> Result<GpuInfo, Error> {
    info_at(&socket(device)?.1)
}

/// A GPU's properties, from its daemon's socket.
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
