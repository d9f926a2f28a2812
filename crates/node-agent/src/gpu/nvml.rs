//! The real answer: NVIDIA's driver through NVML. The library is loaded when it is first asked, so a node without a driver
//! is a [`NoDriver`] and not a crash.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::probe::{Probe, sight_all};
use super::source::{Gpus, NoDriver, Report, Sighting, Usage};

/// Where the driver is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverPaths {
    /// NVML's library; none for what the loader finds as `libnvidia-ml.so.1`.
    pub library: Option<PathBuf>,
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
}

impl Default for DriverPaths {
    fn default() -> Self {
        Self { library: None, sysfs: PathBuf::from("/sys") }
    }
}

/// A GPU that came back is seen only by a library that was initialised after that, so while one is missing the library is
/// closed and opened again, but not more often than this: it costs something.
const REOPEN_EVERY: Duration = Duration::from_secs(30);

/// The driver of this node.
pub struct Driver {
    paths: DriverPaths,
    sessions: Mutex<Sessions>,
}

/// The library is initialised once for everybody, and closed when nobody has it any more.
#[derive(Default)]
struct Sessions {
    current: Option<Session>,
    /// One that was given up but that somebody still has: as long as that is so, a new one would see what the old one sees.
    given_up: Weak<Nvml>,
    /// UUIDs that the last look found, to notice when events have to be registered for other GPUs.
    listed: BTreeSet<String>,
    /// UUIDs that any look found, to notice when one is missing.
    known: BTreeSet<String>,
    /// Goes up when listeners should begin anew.
    generation: u64,
}

struct Session {
    nvml: Arc<Nvml>,
    opened: Instant,
}

impl Driver {
    /// The driver at these places. Nothing is loaded yet.
    pub fn new(paths: DriverPaths) -> Self {
        Self { paths, sessions: Mutex::default() }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The library as it is open now, or opened for this.
    fn open(&self) -> Result<Arc<Nvml>, NoDriver> {
        let mut sessions = self.sessions();
        if let Some(session) = &sessions.current {
            return Ok(session.nvml.clone());
        }
        let old = sessions.given_up.upgrade();
        let nvml = match old {
            Some(nvml) => nvml,
            None => Arc::new(load(self.paths.library.as_deref())?),
        };
        sessions.current = Some(Session { nvml: nvml.clone(), opened: Instant::now() });
        Ok(nvml)
    }

    /// The library has to be opened anew before it is asked again.
    fn give_up(&self) {
        let mut sessions = self.sessions();
        if let Some(session) = sessions.current.take() {
            sessions.given_up = Arc::downgrade(&session.nvml);
            sessions.generation += 1;
        }
    }

    fn generation(&self) -> u64 {
        self.sessions().generation
    }

    /// Draws the consequences of a look: other GPUs need other registrations, missing ones a new session.
    fn learn(&self, sightings: &[Sighting]) {
        let mut sessions = self.sessions();
        let listed: BTreeSet<String> =
            sightings.iter().filter_map(Sighting::uuid).map(str::to_owned).collect();
        if listed != sessions.listed {
            sessions.generation += 1;
        }
        sessions.known.extend(listed.iter().cloned());
        let is_complete = listed.is_superset(&sessions.known) && listed.len() == sightings.len();
        sessions.listed = listed;
        let is_old =
            sessions.current.as_ref().is_some_and(|session| session.opened.elapsed() >= REOPEN_EVERY);
        drop(sessions);
        if is_old && !is_complete {
            self.give_up();
        }
    }
}

fn load(library: Option<&Path>) -> Result<Nvml, NoDriver> {
    let mut builder = Nvml::builder();
    if let Some(path) = library {
        builder.lib_path(OsStr::new(path));
    }
    builder.init().map_err(|error| match (&error, library) {
        (NvmlError::LibloadingError(why), None) => NoDriver(format!(
            "libnvidia-ml.so.1 cannot be loaded ({}); is the NVIDIA runtime in use?",
            reason(why)
        )),
        (NvmlError::LibloadingError(why), Some(path)) => {
            NoDriver(format!("{} cannot be loaded: {}", path.display(), reason(why)))
        }
        _ => NoDriver(error.to_string()),
    })
}

/// What the loader says; libloading keeps it behind its own words.
fn reason(why: &(dyn std::error::Error + 'static)) -> String {
    why.source().map_or_else(|| why.to_string(), ToString::to_string)
}

impl Gpus for Driver {
    fn inventory(&self) -> Result<Vec<Sighting>, NoDriver> {
        let nvml = self.open()?;
        match sight_all(&nvml, &Probe { sysfs: &self.paths.sysfs }) {
            Ok(sightings) => {
                drop(nvml);
                self.learn(&sightings);
                Ok(sightings)
            }
            Err(error) => {
                drop(nvml);
                self.give_up();
                Err(NoDriver(error.to_string()))
            }
        }
    }

    fn listen(&self, hear: &mut dyn FnMut(Report) -> ControlFlow<()>) -> Result<(), NoDriver> {
        let generation = self.generation();
        let nvml = self.open()?;
        super::events::listen(&nvml, &mut |report| {
            hear(report)?;
            if self.generation() == generation { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }

    fn usage(&self, uuid: &str) -> Result<Usage, NoDriver> {
        let nvml = self.open()?;
        let asked = nvml.sys_driver_version().and_then(|driver| {
            let processes = nvml.device_by_uuid(uuid)?.running_compute_processes_count()?;
            Ok(Usage { driver, processes })
        });
        asked.map_err(|why| NoDriver(why.to_string()))
    }
}
