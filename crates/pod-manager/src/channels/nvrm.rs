//! The stock driver's controls, or the simulator's.

use super::{Adopt, ChannelControl, ControlFailure};
use sluice_comm::attach::ContextHandles;
use sluice_nvrm::{ControlError, Controls};
use std::os::fd::OwnedFd;

/// Adopts descriptors of the NVIDIA control device.
#[derive(Clone, Copy, Debug)]
pub struct Nvrm {
    /// Sockets of a simulator are adopted too.
    pub simulated: bool,
}

impl Adopt for Nvrm {
    fn adopt(&mut self, fd: OwnedFd) -> Result<Box<dyn ChannelControl>, (OwnedFd, String)> {
        match Controls::over(fd, self.simulated) {
            Ok(controls) => Ok(Box::new(Driver(controls))),
            Err(refused) => {
                let why = refused.to_string();
                Err((refused.fd, why))
            }
        }
    }
}

struct Driver(Controls);

impl ChannelControl for Driver {
    fn set_slice(&mut self, context: &ContextHandles, us: u64) -> Result<(), ControlFailure> {
        self.0.set_timeslice(context.client, context.channel_group, us).map_err(failure)
    }

    fn stop(&mut self, context: &ContextHandles) -> Result<(), ControlFailure> {
        self.0.disable(context.client, context.subdevice, &context.channels).map_err(failure)
    }

    fn start(&mut self, context: &ContextHandles) -> Result<(), ControlFailure> {
        self.0.enable(context.client, context.subdevice, &context.channels).map_err(failure)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err wants")]
fn failure(error: ControlError) -> ControlFailure {
    if error.is_gone() { ControlFailure::Gone } else { ControlFailure::Failed(error.to_string()) }
}
