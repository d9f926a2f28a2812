//! Modules and functions.

use super::context::{Context, Device};
use super::driver::driver;
use super::status_of;
use crate::border::{Ptr, Status};
use sluice_driver_api::CUresult;
use sluice_driver_api::types::{c_char, c_void};
use sluice_sim::module::{Kernel, Module};
use std::ffi::CString;
use std::sync::{Arc, OnceLock};

pub(crate) struct ModuleObject {
    pub(crate) handle: usize,
    /// The context that it was loaded into; none for a library.
    pub(crate) context: Option<usize>,
    pub(crate) functions: Vec<Arc<Function>>,
    /// Device memory of its global variables.
    _global: Option<GlobalMemory>,
}

/// Device memory of a module's global variables; freed when the module ends.
struct GlobalMemory {
    device: Arc<Device>,
    bytes: u64,
}

impl GlobalMemory {
    fn take(device: &Arc<Device>, bytes: u64) -> Result<Option<Self>, CUresult> {
        if bytes == 0 {
            return Ok(None);
        }
        device.gpu.load_module(bytes).map_err(status_of)?;
        Ok(Some(Self { device: device.clone(), bytes }))
    }
}

impl Drop for GlobalMemory {
    fn drop(&mut self) {
        // The daemon may have ended, and with it the count.
        let _ = self.device.gpu.unload_module(self.bytes);
    }
}

pub(crate) struct Function {
    pub(crate) handle: usize,
    pub(crate) kernel: Kernel,
    /// Its name as a C string.
    pub(crate) c_name: CString,
    pub(crate) module: usize,
    /// Index of the name on each device.
    names: Vec<OnceLock<usize>>,
}

impl Function {
    pub(crate) fn name_on(&self, device: &Device) -> Result<usize, CUresult> {
        let name = self.names.get(device.ordinal).ok_or(CUresult::ERROR_INVALID_DEVICE)?;
        if let Some(name) = name.get() {
            return Ok(*name);
        }
        let index = device.gpu.name(&self.kernel.name).map_err(status_of)?;
        Ok(*name.get_or_init(|| index))
    }
}

/// Parses a module image: a text of the simulated GPU, or PTX with a hold kernel. Of other images only the kind is recognised.
pub(crate) fn parse(image: Ptr<c_void>) -> Result<Module, CUresult> {
    if image.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let image: Ptr<c_char> = image.cast();
    // Byte by byte: an image of another kind has no known length, and may be short.
    let begins = |with: &[u8]| {
        with.iter()
            .enumerate()
            .all(|(index, byte)| image.at(index).read().is_ok_and(|read| read.to_ne_bytes() == [*byte]))
    };
    if begins(sluice_sim::module::MAGIC.as_bytes()) {
        return Module::parse(&image.text()?).map_err(|_| CUresult::ERROR_INVALID_IMAGE);
    }
    if begins(b"\x7fELF") || begins(&[0x50, 0xed, 0x55, 0xba]) || begins(&[0xb1, 0x43, 0x62, 0x46]) {
        return Err(CUresult::ERROR_NO_BINARY_FOR_GPU);
    }
    if begins(b".version") || begins(b"//") {
        let text = image.text()?;
        return Module::of_ptx(&text).ok_or(CUresult::ERROR_INVALID_PTX);
    }
    Err(CUresult::ERROR_INVALID_IMAGE)
}

/// Adds a module of a context, with its functions.
pub(crate) fn add_module(module: Module, context: &Context) -> Result<Arc<ModuleObject>, CUresult> {
    let global = GlobalMemory::take(&context.device, module.global_bytes)?;
    add(module, Some(context.handle), global)
}

/// Adds a library, which is loaded at once if there is a context.
pub(crate) fn add_library(module: Module, context: Option<&Context>) -> Result<Arc<ModuleObject>, CUresult> {
    let global = match context {
        Some(context) => GlobalMemory::take(&context.device, module.global_bytes)?,
        None => None,
    };
    add(module, None, global)
}

fn add(
    module: Module,
    context: Option<usize>,
    global: Option<GlobalMemory>,
) -> Result<Arc<ModuleObject>, CUresult> {
    let driver = driver()?;
    Ok(driver.modules.add(|handle| {
        let functions = module.kernels.into_iter().map(|kernel| {
            driver.functions.add(|function| Function {
                handle: function,
                // Names come from a C string, so there is no NUL within.
                c_name: CString::new(kernel.name.as_str()).unwrap_or_default(),
                kernel,
                module: handle,
                names: driver.devices.iter().map(|_| OnceLock::new()).collect(),
            })
        });
        ModuleObject { handle, context, functions: functions.collect(), _global: global }
    }))
}

pub(crate) fn remove(handle: usize) -> Status {
    let driver = driver()?;
    let module = driver.modules.remove(handle).ok_or(CUresult::ERROR_INVALID_HANDLE)?;
    for function in &module.functions {
        driver.functions.remove(function.handle);
    }
    Ok(())
}
