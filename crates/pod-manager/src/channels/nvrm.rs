//! The stock driver's controls, or the simulator's.

use super::{Adopt, Cause, ChannelControl, ControlFailure};
use sluice_comm::attach::ContextHandles;
use sluice_nvrm::{ControlError, Controls, NvStatus};
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
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_says_is_told_apart() {
        let cause = |error| match failure(error) {
            ControlFailure::Gone => None,
            ControlFailure::Failed(cause, _) => Some(cause),
        };
        let said = |status| cause(ControlError::Refused(status));
        assert_eq!(said(NvStatus::INVALID_OBJECT_HANDLE), None);
        assert_eq!(said(NvStatus::TIMEOUT), Some(Cause::Timeout));
        assert_eq!(cause(ControlError::Timeout), Some(Cause::Timeout));
        assert_eq!(said(NvStatus(0x51)), Some(Cause::NoMemory));
        assert_eq!(said(NvStatus(0x0f)), Some(Cause::GpuHung));
        assert_eq!(said(NvStatus::INVALID_STATE), Some(Cause::InvalidState));
        assert_eq!(said(NvStatus::INSUFFICIENT_PERMISSIONS), Some(Cause::Refused));
        assert_eq!(cause(ControlError::Io(std::io::ErrorKind::BrokenPipe.into())), Some(Cause::Refused));
    }
}
