//! Parts of the doctor that call the driver. Each runs in a process of its own, so that a driver that hangs does not hang the doctor.

use std::io::{self, BufRead};
use std::time::Duration;

use clap::Subcommand;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use serde::{Deserialize, Serialize};
use sluice_load::driver::{Driver, DriverFacts};
use sluice_load::record::write_line;
use sluice_load::session::Session;
use sluice_load::{checkpoint, steady, stream_gate_test};

/// How long a process to be locked may take to finish its submitted work.
const LOCK_MS: u32 = 2_000;

/// The parts.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Prints what the driver and NVML report
    Facts,
    /// Tests whether streams wait for words in memory
    Gate,
    /// Keeps the GPU busy
    Busy { depth: usize, kernel_us: u64 },
    /// Prints the memory that NVML reports for a process
    Memory { pid: i32 },
    /// Locks a process at its next driver call until standard input ends
    Lock { pid: i32 },
}

/// Facts that the driver and NVML report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reported {
    /// The driver's facts, or its error.
    pub(super) driver: Result<DriverFacts, String>,
    /// NVML's facts, or its error.
    pub(super) nvml: Result<NvmlFacts, String>,
}

/// Facts that NVML reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NvmlFacts {
    pub(super) driver: String,
    /// Whether the GPU is in MIG mode; `None` if it has no MIG.
    pub(super) mig: Option<bool>,
}

/// Outcome of locking a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LockOutcome {
    Locked,
    Released,
    Refused(String),
}

/// Runs one part.
pub(crate) fn run(part: &Part) -> anyhow::Result<()> {
    match *part {
        Part::Facts => print(&reported()),
        Part::Gate => {
            // Printed before the session ends: with a stuck stream the session does not end.
            let session = Session::open(0).map_err(|why| why.to_string());
            print(&session.as_ref().map(stream_gate_test::run))
        }
        Part::Busy { depth, kernel_us } => {
            let kernel = Duration::from_micros(kernel_us);
            Ok(steady::run(steady::Config { device: 0, kernel, depth })?)
        }
        Part::Memory { pid } => print(&memory_of(pid)),
        Part::Lock { pid } => lock(pid),
    }
}

fn reported() -> Reported {
    let mut driver =
        Driver::open().and_then(|driver| DriverFacts::of(&driver, 0)).map_err(|why| why.to_string());
    let nvml = nvml_facts(driver.as_mut().ok().map(|facts| &mut facts.uuid)).map_err(|why| why.to_string());
    Reported { driver, nvml }
}

/// The device with the UUID that CUDA reports. CUDA writes that of an instance (MIG) as a GPU's.
fn device_of<'nvml>(nvml: &'nvml Nvml, uuid: &str) -> Result<Device<'nvml>, NvmlError> {
    match nvml.device_by_uuid(uuid) {
        Err(NvmlError::NotFound) => nvml.device_by_uuid(uuid.replacen("GPU-", "MIG-", 1)),
        found => found,
    }
}

/// Also corrects the UUID to the one of NVML.
fn nvml_facts(uuid: Option<&mut String>) -> Result<NvmlFacts, NvmlError> {
    let nvml = Nvml::init()?;
    let device = match uuid {
        Some(uuid) => {
            let device = device_of(&nvml, uuid)?;
            *uuid = device.uuid()?;
            device
        }
        None => nvml.device_by_index(0)?,
    };
    let mig = device.mig_mode().ok().map(|mode| mode.current != 0);
    Ok(NvmlFacts { driver: nvml.sys_driver_version()?, mig })
}

/// The memory of a process on the GPU, in bytes, or why it is not known.
fn memory_of(pid: i32) -> Result<u64, String> {
    sluice_process_memory::check_unfiltered()?;
    let uuid = Driver::open().and_then(|driver| driver.device_uuid(0)).map_err(|why| why.to_string())?;
    let read = || sluice_process_memory::read(&device_of(&Nvml::init()?, &uuid)?);
    let processes = read().map_err(|why| why.to_string())?;
    let process = processes.iter().find(|process| process.pid == pid);
    let process =
        process.ok_or_else(|| format!("NVML lists {} processes, but not process {pid}", processes.len()))?;
    process.bytes.ok_or_else(|| "NVML reports the memory of processes as not available".to_owned())
}

fn lock(pid: i32) -> anyhow::Result<()> {
    let locked = Driver::open().and_then(|driver| checkpoint::lock(&driver, pid, LOCK_MS).map(|()| driver));
    let driver = match locked {
        Ok(driver) => driver,
        Err(why) => return print(&LockOutcome::Refused(why.to_string())),
    };
    let printed = print(&LockOutcome::Locked);
    let mut line = String::new();
    let _ = io::stdin().lock().read_line(&mut line);
    let released = match checkpoint::unlock(&driver, pid) {
        Ok(()) => LockOutcome::Released,
        Err(why) => LockOutcome::Refused(why.to_string()),
    };
    printed.and_then(|()| print(&released))
}

fn print(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(write_line(value, &mut io::stdout().lock())?)
}
