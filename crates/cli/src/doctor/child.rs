//! The doctor's parts that run on a driver, each a process of its own: a driver that hangs hangs one of these.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use nvml_wrapper::Nvml;
use serde::{Deserialize, Serialize};
use sluice_load::driver::Driver;
use sluice_load::facts::Facts;
use sluice_load::session::Session;
use sluice_load::{checkpoint, gate, steady};

/// How long a process to be held may take to finish what it has submitted.
const LOCK_MS: u32 = 2_000;

/// Flags of `sluice doctor-child`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// What the driver says of itself
    Facts,
    /// Tries whether streams wait for words
    Gate,
    /// Is busy
    Busy { depth: usize, kernel_us: u64 },
    /// Holds a process at its next call of the driver until standard input ends
    Hold { pid: i32 },
}

/// What the driver and NVML say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Said {
    /// Or what kept the driver from saying anything.
    pub(super) driver: Result<Facts, String>,
    /// Or what kept NVML from it.
    pub(super) nvml: Result<FromNvml, String>,
}

/// What NVML says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FromNvml {
    /// Version of the driver.
    pub(super) driver: String,
    /// Whether the GPU is in MIG mode; nothing if it cannot be.
    pub(super) mig: Option<bool>,
}

/// Outcomes of both trials with a word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gates {
    pub(super) writable: gate::Outcome,
    /// Not tried beside a stream that stands for good: it might not come to an end.
    pub(super) read_only: Option<gate::Outcome>,
}

impl Gates {
    fn tried(writable: impl FnOnce() -> gate::Outcome, read_only: impl FnOnce() -> gate::Outcome) -> Self {
        let writable = writable();
        let stands = writable == gate::Outcome::NotReleased;
        Self { writable, read_only: (!stands).then(read_only) }
    }
}

/// What came of holding a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Hold {
    /// It is held.
    Held,
    /// It goes on.
    Released,
    /// The driver refused.
    Refused(String),
}

/// Does its part.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match arguments.part {
        Part::Facts => say(&said())?,
        Part::Gate => {
            // Said before the session ends: with a stream that stands it would not end.
            let session = Session::open(0).map_err(|why| why.to_string());
            let tried = |session| Gates::tried(|| gate::writable(session), || gate::read_only(session));
            say(&session.as_ref().map(tried))?;
        }
        Part::Busy { depth, kernel_us } => {
            steady::run(steady::Config { device: 0, kernel: Duration::from_micros(kernel_us), depth })?;
        }
        Part::Hold { pid } => hold(pid)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn said() -> Said {
    let driver = Driver::open().and_then(|driver| Facts::of(&driver, 0)).map_err(|why| why.to_string());
    let uuid = driver.as_ref().ok().map(|facts| facts.uuid.clone());
    Said { nvml: from_nvml(uuid.as_deref()).map_err(|why| why.to_string()), driver }
}

fn from_nvml(uuid: Option<&str>) -> Result<FromNvml, nvml_wrapper::error::NvmlError> {
    let nvml = Nvml::init()?;
    let device = match uuid {
        Some(uuid) => nvml.device_by_uuid(uuid)?,
        None => nvml.device_by_index(0)?,
    };
    let mig = device.mig_mode().ok().map(|mode| mode.current != 0);
    Ok(FromNvml { driver: nvml.sys_driver_version()?, mig })
}

fn hold(pid: i32) -> anyhow::Result<()> {
    let driver = match Driver::open().and_then(|driver| {
        checkpoint::lock(&driver, pid, LOCK_MS)?;
        Ok(driver)
    }) {
        Ok(driver) => driver,
        Err(why) => return say(&Hold::Refused(why.to_string())),
    };
    let said = say(&Hold::Held);
    let mut line = String::new();
    let _ = io::stdin().lock().read_line(&mut line);
    let released = match checkpoint::unlock(&driver, pid) {
        Ok(()) => Hold::Released,
        Err(why) => Hold::Refused(why.to_string()),
    };
    said.and_then(|()| say(&released))
}

fn say(what: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(what)?)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_a_stream_that_stands_for_good_nothing_else_is_tried() {
        use gate::Outcome::{DoesNotWait, NotReleased, Works};
        assert_eq!(Gates::tried(|| Works, || DoesNotWait).read_only, Some(DoesNotWait));
        let stuck = Gates::tried(|| NotReleased, || panic!("it might hang"));
        assert_eq!(stuck, Gates { writable: NotReleased, read_only: None });
    }
}
