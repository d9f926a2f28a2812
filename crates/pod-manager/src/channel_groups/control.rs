//! What a control descriptor can do, why a control fails, the controls of the stock driver or the simulator, and which of them the manager
//! uses: by the result of a self-test, or without one by the driver's branch.

use crate::config::{ClientSource, Config};
use sluice_comm::attach::{ContextHandles, MAX_CONTEXTS};
use sluice_core::channel_groups::ControlOp;
use sluice_nvrm::self_test::{SelfTestResult, UsableControls, boot_id, check_handles};
use sluice_nvrm::{ControlError, Controls, DriverVersion, NvStatus};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use tracing::{info, warn};

/// The controls over one control descriptor. Each may take a millisecond, or never return: the control executor makes them on its own
/// thread.
pub trait ChannelControl: Send {
    /// Makes one control of a context's channel group, or returns why it was not made. A disabled group leaves the GPU and does not run
    /// until it is enabled.
    fn make(&mut self, context: &ContextHandles, op: ControlOp) -> Result<(), ControlFailure>;

    /// The group's time slice in microseconds as it was set last, by whichever process. `None`: it cannot be read.
    fn slice_us(&mut self, context: &ContextHandles) -> Option<u64>;

    /// How often the GPU has switched the group out. `None`: it cannot be read.
    fn switches(&mut self, context: &ContextHandles) -> Option<u32>;
}

/// Why a control was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlFailure {
    /// The group no longer exists.
    #[error("the context is gone")]
    Gone,
    /// Anything else: the control may or may not have had its effect.
    #[error("{1}")]
    Failed(Cause, String),
}

/// What prevented a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It took too long.
    Timeout,
    /// The driver refused it, or could not be reached.
    Refused,
    /// The driver has no memory or other resource for it.
    NoMemory,
    /// The GPU does not answer, or has to be reset.
    GpuHung,
    /// The group or the driver is not in a state for it.
    InvalidState,
}

/// Opens the descriptors that processes send as control descriptors. Runs on the event loop's thread: it must not wait.
pub trait ControlDriver: Send {
    /// The controls over a descriptor, if it is a control descriptor. Otherwise the descriptor, which its sender may have made slow to
    /// close, and what it is instead.
    fn open(&mut self, fd: OwnedFd) -> Result<Box<dyn ChannelControl>, (OwnedFd, String)>;

    /// Whether the driver sets time slices. If not, groups are only disabled and enabled.
    fn sets_slices(&self) -> bool {
        true
    }
}

/// Opens descriptors of the NVIDIA control device.
#[derive(Clone, Copy, Debug)]
pub struct Nvrm {
    /// Sockets of a simulator are opened too.
    pub simulated: bool,
    /// Time slices have an effect.
    pub slices: bool,
}

impl ControlDriver for Nvrm {
    fn open(&mut self, fd: OwnedFd) -> Result<Box<dyn ChannelControl>, (OwnedFd, String)> {
        let controls = Controls::from_descriptor(fd, self.simulated).map_err(|refused| {
            let why = refused.to_string();
            (refused.fd, why)
        })?;
        Ok(Box::new(Driver { controls, checked: BTreeSet::new() }))
    }

    fn sets_slices(&self) -> bool {
        self.slices
    }
}

/// Groups of one control descriptor that are remembered as checked. Contexts come and go, and the tenant chooses their handles.
const MAX_CHECKED: usize = 4 * MAX_CONTEXTS;

struct Driver {
    controls: Controls,
    /// Groups that have answered as groups do, by driver client and handle.
    checked: BTreeSet<(u32, u32)>,
}

impl ChannelControl for Driver {
    /// Asks the driver once per group, before the first control, whether it knows the group.
    fn make(&mut self, context: &ContextHandles, op: ControlOp) -> Result<(), ControlFailure> {
        let ContextHandles { client, subdevice, channel_group, channels, .. } = context;
        let (controls, group) = (&self.controls, (*client, *channel_group));
        if !self.checked.contains(&group) {
            check_handles(controls, context).map_err(failure)?;
            if self.checked.len() >= MAX_CHECKED {
                self.checked.clear();
            }
            self.checked.insert(group);
        }
        let made = match op {
            ControlOp::SetSlice(us) => controls.set_timeslice(*client, *channel_group, us),
            ControlOp::Disable => controls.disable(*client, *subdevice, channels),
            ControlOp::Enable => controls.enable(*client, *subdevice, channels),
        };
        made.map_err(failure)
    }

    fn slice_us(&mut self, context: &ContextHandles) -> Option<u64> {
        self.controls.timeslice(context.client, context.channel_group).ok()
    }

    fn switches(&mut self, context: &ContextHandles) -> Option<u32> {
        let ContextHandles { client, subdevice, channel_group, .. } = *context;
        self.controls.ctxsw_stats(client, subdevice, channel_group).ok().map(|stats| stats.saves)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err expects")]
fn failure(error: ControlError) -> ControlFailure {
    let cause = match &error {
        ControlError::Refused(status) if status.is_gone() => return ControlFailure::Gone,
        ControlError::Refused(status) => cause_of(*status),
        ControlError::Timeout => Cause::Timeout,
        ControlError::Io(_) => Cause::Refused,
    };
    ControlFailure::Failed(cause, error.to_string())
}

/// By the numbers of the driver's nvstatuscodes.h.
fn cause_of(NvStatus(status): NvStatus) -> Cause {
    match status {
        // TIMEOUT, TIMEOUT_RETRY
        0x65 | 0x66 => Cause::Timeout,
        // INSUFFICIENT_RESOURCES, NO_FREE_FIFOS, NO_MEMORY
        0x1a | 0x4f | 0x51 => Cause::NoMemory,
        // CARD_NOT_PRESENT, GPU_IS_LOST, GPU_IN_FULLCHIP_RESET, RC_ERROR, RESET_REQUIRED, FATAL_ERROR
        0x05 | 0x0f | 0x10 | 0x60 | 0x62 | 0x71 => Cause::GpuHung,
        // INVALID_STATE, NOT_READY, STATE_IN_USE
        0x40 | 0x55 | 0x63 => Cause::InvalidState,
        _ => Cause::Refused,
    }
}

/// The driver controls to use, with the reason in the log.
pub(crate) fn allowed_controls(config: &Config, driver: &DriverVersion) -> UsableControls {
    let gpu = match &config.clients {
        ClientSource::Agent(agent) => Some(agent.gpu_uuid.as_str()),
        ClientSource::File { .. } => None,
    };
    let result = config.self_test.as_deref().and_then(read_result);
    match result.filter(|result| result.applies_to(driver, gpu, &boot_id())) {
        Some(result) => by_result(&result),
        None if gpu.is_some_and(|gpu| gpu.starts_with("MIG-")) => {
            warn!(
                "no self-test has proven what the driver's controls do to an instance of a GPU: nothing is controlled"
            );
            UsableControls::NoControls
        }
        None => by_branch(driver),
    }
}

fn by_result(result: &SelfTestResult) -> UsableControls {
    let SelfTestResult { about, slices, stops, .. } = result;
    match result.usable_controls() {
        UsableControls::All => info!(driver = about.driver, "the self-test has proven the driver's controls"),
        UsableControls::DisableOnly => {
            warn!(driver = about.driver, %slices, "time slices have no proven effect: groups are only enabled and disabled");
        }
        UsableControls::NoControls => {
            warn!(driver = about.driver, %stops, "the self-test found that channel groups cannot be disabled: all processes are scheduled by token");
        }
    }
    result.usable_controls()
}

/// The layouts of an unknown branch were not compared with those in this program: a control could do something else.
fn by_branch(driver: &DriverVersion) -> UsableControls {
    let DriverVersion::Unknown(version) = driver else { return UsableControls::All };
    warn!(
        version,
        "the layouts of this driver were not compared: nothing is controlled, all processes are scheduled by token. \
         `sluice self-test` proves what its controls do; --controls any-driver makes them without proof"
    );
    UsableControls::NoControls
}

fn read_result(path: &Path) -> Option<SelfTestResult> {
    let read = std::fs::read(path).map_err(|why| why.to_string());
    let result = read.and_then(|text| serde_json::from_slice(&text).map_err(|why| why.to_string()));
    result.map_err(|why| warn!(path = %path.display(), why, "no result of a self-test")).ok()
}

#[cfg(test)]
mod tests;
