//! The controls of one channel group of this process.

use sluice_comm::attach::{ContextHandles, MAX_CHANNELS};
use sluice_hook_core::group_recovery::{OwnGroup, RecoveryError};
use sluice_nvrm::ioctl_observation::ComputeGroup;
use sluice_nvrm::{ControlError, Controls};

use crate::{channel_groups, real};

/// The driver's default time slice for compute groups, used if the program's own is not known.
const DEFAULT_SLICE_US: u64 = 2048;

/// A group of this process, controlled through one of its own descriptors.
#[derive(Debug)]
pub(super) struct OwnComputeGroup(pub(super) ComputeGroup);

impl OwnGroup for OwnComputeGroup {
    fn restore_slice(&self) -> Result<(), RecoveryError> {
        let ContextHandles { client, channel_group, .. } = self.0.handles;
        let slice_us = self.0.timeslice_us.unwrap_or(DEFAULT_SLICE_US);
        controls(&self.0)?.set_timeslice(client, channel_group, slice_us).map_err(of_control)
    }

    fn enable(&self) -> Result<(), RecoveryError> {
        let ContextHandles { client, subdevice, channels, .. } = &self.0.handles;
        let controls = controls(&self.0)?;
        let mut outcome = Ok(());
        for some in channels.chunks(MAX_CHANNELS) {
            if controls.enable(*client, *subdevice, some).is_err() {
                // A channel that no longer exists makes the whole list fail.
                for channel in some {
                    let enabled = controls.enable(*client, *subdevice, std::slice::from_ref(channel));
                    if let Err(error) = enabled.map_err(of_control)
                        && outcome != Err(RecoveryError::Failed)
                    {
                        outcome = Err(error);
                    }
                }
            }
        }
        outcome
    }
}

fn controls(group: &ComputeGroup) -> Result<Controls, RecoveryError> {
    let control = channel_groups::copy_control_descriptor(group.fd).ok_or(RecoveryError::Failed)?;
    Controls::from_descriptor(control, real::simulated_ioctl().is_some()).map_err(|_| RecoveryError::Failed)
}

fn of_control(error: ControlError) -> RecoveryError {
    if error.is_gone() { RecoveryError::Gone } else { RecoveryError::Failed }
}
