//! Readings by NVML. The library is loaded when it is first needed, so a machine without a driver yields errors and no crash.

use super::{MemoryReader, ProcessMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// The driver's management library, for one GPU.
#[derive(Default)]
pub struct NvmlReader {
    /// The GPU's UUID; `None`: the only GPU.
    gpu: Option<String>,
    library: Option<Nvml>,
    /// Loading has failed. A driver that is installed later needs a new manager.
    load_failure: Option<String>,
}

impl NvmlReader {
    /// A reader of this GPU, or of the only one. Nothing is loaded yet.
    pub fn new(gpu: Option<String>) -> Self {
        Self { gpu, ..Self::default() }
    }

    fn library(&mut self) -> Result<&Nvml, String> {
        if let Some(why) = &self.load_failure {
            return Err(why.clone());
        }
        if self.library.is_none() {
            sluice_process_memory::check_unfiltered()?;
            match Nvml::init() {
                Ok(library) => self.library = Some(library),
                Err(error) => {
                    let why = format!("libnvidia-ml.so.1 cannot be used: {error}");
                    if let NvmlError::LibloadingError(_) = error {
                        self.load_failure = Some(why.clone());
                    }
                    return Err(why);
                }
            }
        }
        self.library.as_ref().ok_or_else(|| "libnvidia-ml.so.1 is not loaded".to_owned())
    }
}

fn device<'a>(library: &'a Nvml, gpu: Option<&str>) -> Result<Device<'a>, String> {
    let words = |error: NvmlError| error.to_string();
    if let Some(uuid) = gpu {
        return library.device_by_uuid(uuid).map_err(|error| format!("GPU {uuid}: {error}"));
    }
    match library.device_count().map_err(words)? {
        1 => library.device_by_index(0).map_err(words),
        count => Err(format!("the machine has {count} GPUs; --gpu-uuid names the one to be read")),
    }
}

impl MemoryReader for NvmlReader {
    /// Loads the library: a first reservation waits for the first reading. A failure is reported by the first reading, which tries again.
    fn prepare(&mut self) {
        let _ = self.library();
        self.load_failure = None;
    }

    fn read(&mut self) -> Result<Vec<ProcessMemory>, String> {
        let gpu = self.gpu.clone();
        let library = self.library()?;
        let device = device(library, gpu.as_deref())?;
        sluice_process_memory::read(&device).map_err(|error| error.to_string())
    }

    fn energy_mj(&mut self) -> Option<u64> {
        let gpu = self.gpu.clone();
        let library = self.library().ok()?;
        sluice_process_memory::read_energy(&device(library, gpu.as_deref()).ok()?)
    }
}
