//! The real driver, through NVML. The library is loaded at the first use, so a node without a driver yields
//! [`DriverUnavailable`] and no crash.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::driver::{DriverEvent, DriverUnavailable, GpuDriver, ProcessMemory, ScannedGpu, Usage};
use super::probe::scan_all;

/// Where the driver's library is searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverPaths {
    /// NVML's library; `None` for the `libnvidia-ml.so.1` that the loader finds.
    pub library: Option<PathBuf>,
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
}

impl Default for DriverPaths {
    fn default() -> Self {
        Self { library: None, sysfs: PathBuf::from("/sys") }
    }
}

/// What becomes of GPUs in MIG mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mig {
    /// They are left to others, with their instances.
    #[default]
    Off,
    /// Each instance is a GPU of its own in the inventory.
    Instances,
}

/// Minimum interval between two initialisations of the library. A GPU that came back is visible only to a library that
/// was initialised afterwards. So while a GPU is missing, the library is closed and opened again.
const REOPEN_EVERY: Duration = Duration::from_secs(30);

/// The driver of this node.
pub struct NvmlDriver {
    paths: DriverPaths,
    mig: Mig,
    sessions: Mutex<Sessions>,
}

/// The library is initialised once for all users, and closed when the last user has dropped it.
#[derive(Default)]
struct Sessions {
    current: Option<Session>,
    /// A dropped session that a user still holds. While it lives, a new session would see the same GPUs as the old
    /// one.
    dropped: Weak<Nvml>,
    /// UUIDs of the last scan. When they change, events have to be registered for other GPUs.
    listed: BTreeSet<String>,
    /// UUIDs of all scans. They show that a GPU is missing.
    known: BTreeSet<String>,
    /// Incremented when listeners have to start again.
    generation: u64,
}

struct Session {
    nvml: Arc<Nvml>,
    opened: Instant,
}

impl NvmlDriver {
    /// The driver at these paths. Nothing is loaded yet.
    pub fn new(paths: DriverPaths, mig: Mig) -> Self {
        Self { paths, mig, sessions: Mutex::default() }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open library; opened if necessary.
    fn open(&self) -> Result<Arc<Nvml>, DriverUnavailable> {
        let mut sessions = self.sessions();
        if let Some(session) = &sessions.current {
            return Ok(session.nvml.clone());
        }
        let old = sessions.dropped.upgrade();
        let nvml = match old {
            Some(nvml) => nvml,
            None => Arc::new(load(self.paths.library.as_deref())?),
        };
        sessions.current = Some(Session { nvml: nvml.clone(), opened: Instant::now() });
        Ok(nvml)
    }

    /// Drops the session: the library is opened again before its next use.
    fn drop_session(&self) {
        let mut sessions = self.sessions();
        if let Some(session) = sessions.current.take() {
            sessions.dropped = Arc::downgrade(&session.nvml);
            sessions.generation += 1;
        }
    }

    fn generation(&self) -> u64 {
        self.sessions().generation
    }

    /// Acts on a scan: a changed list of GPUs needs new registrations, a missing GPU needs a new session.
    fn apply_scan(&self, scanned: &[ScannedGpu]) {
        let mut sessions = self.sessions();
        let listed: BTreeSet<String> =
            scanned.iter().filter_map(ScannedGpu::uuid).map(str::to_owned).collect();
        if listed != sessions.listed {
            sessions.generation += 1;
        }
        sessions.known.extend(listed.iter().cloned());
        let is_complete = listed.is_superset(&sessions.known) && listed.len() == scanned.len();
        sessions.listed = listed;
        let is_old =
            sessions.current.as_ref().is_some_and(|session| session.opened.elapsed() >= REOPEN_EVERY);
        drop(sessions);
        if is_old && !is_complete {
            self.drop_session();
        }
    }
}

fn load(library: Option<&Path>) -> Result<Nvml, DriverUnavailable> {
    let mut builder = Nvml::builder();
    if let Some(path) = library {
        builder.lib_path(OsStr::new(path));
    }
    builder.init().map_err(|error| match (&error, library) {
        (NvmlError::LibloadingError(why), None) => DriverUnavailable(format!(
            "libnvidia-ml.so.1 cannot be loaded ({}); is the NVIDIA runtime in use?",
            reason(why)
        )),
        (NvmlError::LibloadingError(why), Some(path)) => {
            DriverUnavailable(format!("{} cannot be loaded: {}", path.display(), reason(why)))
        }
        _ => DriverUnavailable(error.to_string()),
    })
}

/// The loader's message, which libloading hides behind its own.
fn reason(why: &(dyn std::error::Error + 'static)) -> String {
    why.source().map_or_else(|| why.to_string(), ToString::to_string)
}

impl GpuDriver for NvmlDriver {
    fn inventory(&self) -> Result<Vec<ScannedGpu>, DriverUnavailable> {
        let nvml = self.open()?;
        match scan_all(&nvml, &self.paths.sysfs, self.mig) {
            Ok(scanned) => {
                drop(nvml);
                self.apply_scan(&scanned);
                Ok(scanned)
            }
            Err(error) => {
                drop(nvml);
                self.drop_session();
                Err(DriverUnavailable(error.to_string()))
            }
        }
    }

    fn listen(
        &self,
        on_event: &mut dyn FnMut(DriverEvent) -> ControlFlow<()>,
    ) -> Result<(), DriverUnavailable> {
        let generation = self.generation();
        let nvml = self.open()?;
        super::xid_events::listen(&nvml, &mut |report| {
            on_event(report)?;
            if self.generation() == generation { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }

    fn usage(&self, uuid: &str) -> Result<Usage, DriverUnavailable> {
        let nvml = self.open()?;
        let usage = nvml.sys_driver_version().and_then(|driver| {
            let processes = nvml.device_by_uuid(uuid)?.running_compute_processes_count()?;
            Ok(Usage { driver, processes })
        });
        usage.map_err(|why| DriverUnavailable(why.to_string()))
    }

    fn process_memory(&self, uuid: &str) -> Result<Vec<ProcessMemory>, DriverUnavailable> {
        let nvml = self.open()?;
        let read = nvml.device_by_uuid(uuid).and_then(|device| sluice_process_memory::read(&device));
        read.map_err(|why| DriverUnavailable(why.to_string()))
    }

    fn energy_mj(&self, uuid: &str) -> Option<u64> {
        sluice_process_memory::read_energy(&self.open().ok()?.device_by_uuid(uuid).ok()?)
    }
}
