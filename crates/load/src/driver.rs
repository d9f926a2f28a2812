//! The CUDA driver as an ordinary program finds it: `dlopen("libcuda.so.1")`, `dlsym`. A preloaded hook intercepts both.

use std::ffi::{CStr, c_void};
use std::io;
use std::path::Path;
use std::ptr;

use libloading::Library;
use serde::{Deserialize, Serialize};
use sluice_driver_api::types::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, CUdevice, CUdevice_attribute, CUuuid,
};
use sluice_driver_api::{CUresult, RealDriver};
use thiserror::Error;

use crate::record::BufferState;

/// Why a driver call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The library cannot be loaded.
    #[error("cannot load {path}: {why}")]
    NoLibrary {
        /// Path of the library.
        path: String,
        /// The loader's message.
        why: String,
    },
    /// The library lacks a function that the generators need.
    #[error("libcuda.so.1 has no {0}")]
    NoFunction(&'static str),
    /// The driver returned an error.
    #[error("{call}: error {} ({})", .status.0, .status.name().unwrap_or("unknown"))]
    Failed {
        /// Name of the function.
        call: &'static str,
        /// The status that it returned.
        status: CUresult,
    },
    /// A size does not fit in memory of this kind.
    #[error("{0} bytes cannot be addressed")]
    TooLarge(u64),
}

impl Error {
    /// Whether memory was refused: by the driver, or by a hook that enforces a limit.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Failed { status: CUresult::ERROR_OUT_OF_MEMORY, .. })
    }

    /// Whether the operation did not end within its time.
    pub fn is_not_ready(&self) -> bool {
        matches!(self, Self::Failed { status: CUresult::ERROR_NOT_READY, .. })
    }
}

/// Why a generator could not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The device or the driver failed.
    #[error(transparent)]
    Driver(#[from] Error),
    /// The output cannot be written, for example because its reader has ended.
    #[error("cannot write a record: {0}")]
    Output(#[from] io::Error),
    /// A line of input is no command.
    #[error("`{0}` is no command: {1}")]
    Command(String, #[source] serde_json::Error),
}

/// The buffer and the errors of the last record. A driver error that ended the run is one of them; any other error is
/// returned.
pub(crate) fn final_buffer(
    ended: Result<(), RunError>,
    read: impl FnOnce() -> Result<Vec<u64>, Error>,
) -> Result<(BufferState, Vec<String>), RunError> {
    let mut errors = Vec::new();
    match ended {
        Err(RunError::Driver(why)) => errors.push(why.to_string()),
        other => other?,
    }
    let buffer = read().map(|words| BufferState::of(&words)).unwrap_or_else(|why| {
        errors.push(why.to_string());
        BufferState::default()
    });
    Ok((buffer, errors))
}

/// Converts a status to a result that names the call by its symbol without the version.
pub(crate) fn check(symbol: &'static str, status: CUresult) -> Result<(), Error> {
    let call = symbol.strip_suffix("_v2").unwrap_or(symbol);
    if status == CUresult::SUCCESS { Ok(()) } else { Err(Error::Failed { call, status }) }
}

/// Calls the driver function of this symbol, in the caller's `unsafe` block. Without such a function: [`Error::NoFunction`].
macro_rules! call {
    ($driver:expr, $symbol:ident($($argument:expr),* $(,)?)) => {
        match $driver.api().$symbol {
            Some(function) => $crate::driver::check(stringify!($symbol), function($($argument),*)),
            None => Err($crate::driver::Error::NoFunction(stringify!($symbol))),
        }
    };
}
pub(crate) use call;

/// A loaded and initialised driver. It stays loaded until the process ends, as libcuda expects.
#[derive(Debug)]
pub struct Driver {
    api: RealDriver,
}

impl Driver {
    /// Loads `libcuda.so.1` by the loader's rules and calls `cuInit`.
    /// Errors: the library cannot be loaded, or it finds no device.
    pub fn open() -> Result<Self, Error> {
        Self::open_library("libcuda.so.1".as_ref())
    }

    /// As [`Self::open`], with another library that exports the driver API, for example the hook.
    /// Errors: the library cannot be loaded, or it finds no device.
    pub fn open_library(path: &Path) -> Result<Self, Error> {
        // SAFETY: libcuda's initialisers have no preconditions; every CUDA program runs them in the same way. The hook's
        // initialisers have none either, because the hook is loaded into arbitrary programs.
        let library = unsafe { Library::new(path) }.map_err(|why| Error::NoLibrary {
            path: path.display().to_string(),
            why: loader_message(&why),
        })?;
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: libcuda exports each address under that name, so it is a function of the driver's type for that name. The
        // library is never unloaded.
        let api = unsafe { RealDriver::load(|name| address(library, name)) };
        let driver = Self { api };
        // SAFETY: cuInit takes a flag word that must be zero.
        unsafe { call!(driver, cuInit(0))? };
        Ok(driver)
    }

    /// Number of devices.
    pub fn device_count(&self) -> Result<i32, Error> {
        let mut count = 0;
        // SAFETY: the pointer is to a local of the type that the driver writes.
        unsafe { call!(self, cuDeviceGetCount(&raw mut count))? };
        Ok(count)
    }

    /// Version of the driver's CUDA API: 1000 × major + 10 × minor.
    pub fn cuda_version(&self) -> Result<i32, Error> {
        let mut version = 0;
        // SAFETY: the driver writes one number to a local.
        unsafe { call!(self, cuDriverGetVersion(&raw mut version))? };
        Ok(version)
    }

    pub(crate) fn device(&self, ordinal: i32) -> Result<CUdevice, Error> {
        let mut device = 0;
        // SAFETY: the driver writes one device to a local.
        unsafe { call!(self, cuDeviceGet(&raw mut device, ordinal))? };
        Ok(device)
    }

    /// An attribute of a device, by its number in the driver API.
    pub fn attribute(&self, ordinal: i32, attribute: CUdevice_attribute) -> Result<i32, Error> {
        let (device, mut value) = (self.device(ordinal)?, 0);
        // SAFETY: the driver writes one number to a local; `device` came from the driver.
        unsafe { call!(self, cuDeviceGetAttribute(&raw mut value, attribute, device))? };
        Ok(value)
    }

    /// Name of a device.
    pub fn device_name(&self, ordinal: i32) -> Result<String, Error> {
        let (device, mut text) = (self.device(ordinal)?, [0_u8; 256]);
        // SAFETY: the driver writes at most 255 bytes and a zero into a buffer of 256.
        unsafe { call!(self, cuDeviceGetName(text.as_mut_ptr().cast(), 255, device))? };
        let text = CStr::from_bytes_until_nul(&text).map(|name| name.to_string_lossy().into_owned());
        Ok(text.unwrap_or_default())
    }

    /// UUID of a device as NVML writes it: `GPU-` and the UUID.
    pub fn device_uuid(&self, ordinal: i32) -> Result<String, Error> {
        let (device, mut uuid) = (self.device(ordinal)?, CUuuid { bytes: [0; 16] });
        // SAFETY: the driver writes one UUID to a local; `device` came from the driver.
        unsafe { call!(self, cuDeviceGetUuid_v2(&raw mut uuid, device))? };
        Ok(nvml_uuid(uuid.bytes))
    }

    pub(crate) fn api(&self) -> &RealDriver {
        &self.api
    }
}

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

/// The loader's own message, which is the source of libloading's error.
fn loader_message(why: &libloading::Error) -> String {
    std::error::Error::source(why).map_or_else(|| why.to_string(), ToString::to_string)
}

fn nvml_uuid(bytes: [u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (place, byte) in bytes.iter().enumerate() {
        let dash = if matches!(place, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
        text += &format!("{dash}{byte:02x}");
    }
    text
}

fn address(library: &'static Library, name: &CStr) -> *mut c_void {
    // SAFETY: the symbol is only read as an address; `RealDriver` gives it the type of the function with that name.
    let found = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) };
    found.map_or(ptr::null_mut(), |symbol| *symbol)
}

#[cfg(test)]
mod tests;
