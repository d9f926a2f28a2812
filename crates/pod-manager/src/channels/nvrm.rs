//! The stock driver's controls, or the simulator's.

use super::{Adopt, ChannelControl, ControlFailure};
use sluice_comm::attach::{ContextHandles, MAX_CONTEXTS};
use sluice_nvrm::{ControlError, Controls, selftest};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

/// Adopts descriptors of the NVIDIA control device.
#[derive(Clone, Copy, Debug)]
pub struct Nvrm {
    /// Sockets of a simulator are adopted too.
    pub simulated: bool,
}

impl Nvrm {
    /// Takes the control device, and sockets if `simulated`.
    #[must_use]
    pub fn new(simulated: bool) -> Self {
        Self { simulated }
    }
}

impl Adopt for Nvrm {
    fn adopt(&mut self, fd: OwnedFd) -> Result<Box<dyn ChannelControl>, (OwnedFd, String)> {
        match Controls::over(fd, self.simulated) {
            Ok(controls) => Ok(Box::new(Driver { controls, checked: BTreeSet::new() })),
            Err(refused) => {
                let why = refused.to_string();
                Err((refused.fd, why))
            }
        }
    }
}

/// Groups of one way to the driver that are remembered as checked: contexts come and go, and their handles are the tenant's.
const REMEMBERED: usize = 4 * MAX_CONTEXTS;

struct Driver {
    controls: Controls,
    /// Groups that have answered as groups do, by client and handle.
    checked: BTreeSet<(u32, u32)>,
}

impl Driver {
    /// The controls, for a group that the driver knows. Asked once per group, before its first control.
    fn of(&mut self, context: &ContextHandles) -> Result<&Controls, ControlFailure> {
        let group = (context.client, context.channel_group);
        if !self.checked.contains(&group) {
            selftest::answers(&self.controls, context).map_err(failure)?;
            if self.checked.len() >= REMEMBERED {
                self.checked.clear();
            }
            self.checked.insert(group);
        }
        Ok(&self.controls)
    }
}

impl ChannelControl for Driver {
    fn set_slice(&mut self, context: &ContextHandles, us: u64) -> Result<(), ControlFailure> {
        self.of(context)?.set_timeslice(context.client, context.channel_group, us).map_err(failure)
    }

    fn stop(&mut self, context: &ContextHandles) -> Result<(), ControlFailure> {
        self.of(context)?.disable(context.client, context.subdevice, &context.channels).map_err(failure)
    }

    fn start(&mut self, context: &ContextHandles) -> Result<(), ControlFailure> {
        self.of(context)?.enable(context.client, context.subdevice, &context.channels).map_err(failure)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err wants")]
fn failure(error: ControlError) -> ControlFailure {
    if error.is_gone() { ControlFailure::Gone } else { ControlFailure::Failed(error.to_string()) }
}
