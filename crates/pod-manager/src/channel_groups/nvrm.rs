//! The stock driver's controls, or the simulator's.

use super::{Cause, ChannelControl, ControlDriver, ControlFailure};
use sluice_comm::attach::{ContextHandles, MAX_CONTEXTS};
use sluice_core::channel_groups::ControlOp;
use sluice_nvrm::{ControlError, Controls, NvStatus, self_test};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

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
            self_test::check_handles(controls, context).map_err(failure)?;
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

#[cfg(test)]
mod tests;
