//! The driver of this process: its devices, and the tables of everything that has a handle.

use super::array::{Array, Mipmap};
use super::capture::Captures;
use super::context::{Context, Device};
use super::graph::{Exec, GraphObject};
use super::lock;
use super::memory::Memory;
use super::module::{Function, ModuleObject};
use super::stream::{Event, Stream};
use super::table::{Kind, Table};
use crate::border::Status;
use sluice_driver_api::CUresult;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The environment variable with the daemons' sockets, one per device, separated by commas.
const SOCKET: &str = "SLUICE_SIM_SOCKET";
/// The environment variable with the label of this process in the ledger.
const LABEL: &str = "SLUICE_SIM_LABEL";

pub(crate) struct Driver {
    pub(crate) devices: Vec<Arc<Device>>,
    pub(crate) contexts: Table<Context>,
    pub(crate) modules: Table<ModuleObject>,
    pub(crate) functions: Table<Function>,
    pub(crate) streams: Table<Stream>,
    pub(crate) events: Table<Event>,
    pub(crate) graphs: Table<GraphObject>,
    pub(crate) execs: Table<Exec>,
    pub(crate) arrays: Table<Array>,
    pub(crate) mipmaps: Table<Mipmap>,
    pub(crate) memory: Memory,
    pub(crate) captures: Captures,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// Initialisation has begun in this process or in one that it was forked from.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// This process was forked after initialisation had begun: as with the real driver, its driver calls fail.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The driver, if `cuInit` has succeeded in this process.
pub(crate) fn driver() -> Result<&'static Driver, CUresult> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(CUresult::ERROR_NOT_INITIALIZED);
    }
    DRIVER.get().ok_or(CUresult::ERROR_NOT_INITIALIZED)
}

/// The driver, for a call that is not safe during a capture.
pub(crate) fn driver_for_unsafe_call() -> Result<&'static Driver, CUresult> {
    let driver = driver()?;
    driver.captures.unsafe_call()?;
    Ok(driver)
}

/// Waits while this process is locked by another one.
pub(crate) fn wait_unlocked() {
    if let Ok(driver) = driver() {
        driver.devices.iter().for_each(|device| device.gpu.wait_unlocked());
    }
}

/// The sockets of this process's devices, or before `cuInit` those that the environment names.
pub(crate) fn sockets() -> Vec<PathBuf> {
    if let Ok(driver) = driver() {
        return driver.devices.iter().map(|device| device.socket.clone()).collect();
    }
    named_sockets()
}

/// The sockets that the environment names, one per device.
pub(crate) fn named_sockets() -> Vec<PathBuf> {
    let sockets = std::env::var(SOCKET).unwrap_or_default();
    sockets.split(',').filter(|socket| !socket.is_empty()).map(PathBuf::from).collect()
}

extern "C" fn in_forked_child() {
    FORKED.store(BEGUN.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Connects to the daemons that the environment names. Later calls have no effect.
pub(crate) fn init() -> Status {
    let sockets = std::env::var(SOCKET).unwrap_or_default();
    init_at(&sockets, &std::env::var(LABEL).unwrap_or_default())
}

/// Connects to these daemons, unless the process is connected already.
pub(crate) fn init_at(sockets: &str, label: &str) -> Status {
    static ONE_AT_A_TIME: Mutex<bool> = Mutex::new(false);
    if FORKED.load(Ordering::Relaxed) {
        return Err(CUresult::ERROR_NOT_INITIALIZED);
    }
    if DRIVER.get().is_some() {
        return Ok(());
    }
    let mut registered = lock(&ONE_AT_A_TIME);
    if DRIVER.get().is_some() {
        return Ok(());
    }
    if !*registered {
        super::host::at_fork(in_forked_child);
        *registered = true;
    }
    let mut devices = Vec::new();
    for socket in sockets.split(',').filter(|socket| !socket.is_empty()) {
        devices.push(Arc::new(Device::connect(devices.len(), Path::new(socket), label)?));
    }
    if devices.is_empty() {
        return Err(CUresult::ERROR_NO_DEVICE);
    }
    BEGUN.store(true, Ordering::Relaxed);
    let driver = Driver {
        devices,
        contexts: Table::new(Kind::Context),
        modules: Table::new(Kind::Module),
        functions: Table::new(Kind::Function),
        streams: Table::new(Kind::Stream),
        events: Table::new(Kind::Event),
        graphs: Table::new(Kind::Graph),
        execs: Table::new(Kind::GraphExec),
        arrays: Table::new(Kind::Array),
        mipmaps: Table::new(Kind::Mipmap),
        memory: Memory::default(),
        captures: Captures::default(),
    };
    // No other thread can have set it: the lock is held.
    let _ = DRIVER.set(driver);
    Ok(())
}

impl Driver {
    pub(crate) fn device(&self, ordinal: i32) -> Result<&Arc<Device>, CUresult> {
        let index = usize::try_from(ordinal).map_err(|_| CUresult::ERROR_INVALID_DEVICE)?;
        self.devices.get(index).ok_or(CUresult::ERROR_INVALID_DEVICE)
    }
}
