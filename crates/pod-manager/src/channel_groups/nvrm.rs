//! The stock driver's controls, or the simulator's.

use super::{Cause, ChannelControl, ControlDriver, ControlFailure};
use sluice_comm::attach::{ContextHandles, MAX_CONTEXTS};
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

impl Nvrm {
    /// Takes the control device, and sockets if `simulated`, of a driver that sets slices.
    #[must_use]
    pub fn new(simulated: bool) -> Self {
        Self { simulated, slices: true }
    }
}

impl ControlDriver for Nvrm {
    fn open(&mut self, fd: OwnedFd) -> Result<Box<dyn ChannelControl>, (OwnedFd, String)> {
        match Controls::from_descriptor(fd, self.simulated) {
            Ok(controls) => Ok(Box::new(Driver { controls, checked: BTreeSet::new() })),
            Err(refused) => {
                let why = refused.to_string();
                Err((refused.fd, why))
            }
        }
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

impl Driver {
    /// The controls, after the driver has confirmed that it knows the group. It is asked once per group, before the first control.
    fn checked(&mut self, context: &ContextHandles) -> Result<&Controls, ControlFailure> {
        let group = (context.client, context.channel_group);
        if !self.checked.contains(&group) {
            self_test::check_handles(&self.controls, context).map_err(failure)?;
            if self.checked.len() >= MAX_CHECKED {
                self.checked.clear();
            }
            self.checked.insert(group);
        }
        Ok(&self.controls)
    }
}

impl ChannelControl for Driver {
    fn set_slice(&mut self, context: &ContextHandles, us: u64) -> Result<(), ControlFailure> {
        self.checked(context)?.set_timeslice(context.client, context.channel_group, us).map_err(failure)
    }

    fn disable(&mut self, context: &ContextHandles) -> Result<(), ControlFailure> {
        self.checked(context)?.disable(context.client, context.subdevice, &context.channels).map_err(failure)
    }

    fn enable(&mut self, context: &ContextHandles) -> Result<(), ControlFailure> {
        self.checked(context)?.enable(context.client, context.subdevice, &context.channels).map_err(failure)
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
