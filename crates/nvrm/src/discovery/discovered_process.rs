//! A process whose channel groups were found without its cooperation: its copied control descriptors, and the groups behind them.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use sluice_comm::attach::ContextHandles;

use super::group_discovery::{GroupDiscovery, ScannedProcess};
use super::{DiscoveryError, ObjectTree, WalkLimits};
use crate::{ControlError, Controls};

/// A process of which the channel groups were found.
#[derive(Debug)]
pub struct DiscoveredProcess(Vec<DiscoveredDescriptor>);

impl DiscoveredProcess {
    /// Finds the compute groups of a process. `newest` is the handle of a client made just now ([`super::newest_client`]): older
    /// clients are below it.
    /// Errors: [`DiscoveryError`]; also if one of the groups could not be disabled, because a process of which a part continues
    /// is not stopped.
    pub fn find(pid: i32, simulated: bool, newest: Option<u32>) -> Result<Self, DiscoveryError> {
        let pidfd = sluice_sys::pidfd::open(pid).map_err(|why| DiscoveryError::NoAccess { pid, why })?;
        let process = ScannedProcess { key: (pid, 0), pidfd: pidfd.as_fd(), pod: "" };
        let numbers = super::driver_descriptors(pid, simulated);
        let numbers = numbers.map_err(|why| DiscoveryError::NoAccess { pid, why })?;
        let mut discovery = GroupDiscovery::single_scan(simulated, newest);
        discovery.inspect(&process, &numbers, None, &WalkLimits::default()).map(Self)
    }

    /// Its compute groups.
    pub fn groups(&self) -> impl Iterator<Item = &ContextHandles> {
        self.0.iter().flat_map(|descriptor| &descriptor.groups)
    }

    /// Enables all groups, also those after one that could not be enabled.
    /// Errors: [`ControlError`] of the first group that could not be enabled.
    pub fn enable(&self) -> Result<(), ControlError> {
        let mut result = Ok(());
        for DiscoveredDescriptor { controls, groups, .. } in &self.0 {
            for group in groups {
                result = result.and(controls.enable(group.client, group.subdevice, &group.channels));
            }
        }
        result
    }
}

/// One open file of a process, and the compute groups that are controlled through it.
#[derive(Debug)]
pub struct DiscoveredDescriptor {
    pub(super) descriptor: OwnedFd,
    pub(super) controls: Controls,
    pub(super) groups: Vec<ContextHandles>,
}

impl DiscoveredDescriptor {
    /// The copy of the process's descriptor, and the groups behind it. Each group names the descriptor by index 0.
    pub fn into_parts(self) -> (OwnedFd, Vec<ContextHandles>) {
        (self.descriptor, self.groups)
    }
}

/// The groups of a tree that are on this GPU, by its UUID as the driver spells it ("GPU-..."), or all groups. Returns also whether
/// groups of other GPUs were left out.
/// Errors: a text that names a group that could not be disabled, or the driver's error instead of an answer.
pub(super) fn groups_on(
    controls: &Controls,
    tree: ObjectTree,
    gpu: Option<&str>,
) -> Result<(Vec<ContextHandles>, bool), String> {
    let (mut has_other_gpus, mut known) = (false, HashMap::new());
    let found = tree.into_groups(|client, subdevice| {
        let Some(gpu) = gpu else { return Ok(true) };
        let is_on_this_gpu = match known.get(&(client, subdevice)) {
            Some(is_on_this_gpu) => *is_on_this_gpu,
            None => {
                let uuid = controls.gpu_uuid(client, subdevice);
                uuid.map_err(|error| format!("which GPU they are on: {error}"))? == gpu
            }
        };
        known.insert((client, subdevice), is_on_this_gpu);
        has_other_gpus |= !is_on_this_gpu;
        Ok(is_on_this_gpu)
    })?;
    Ok((found, has_other_gpus))
}
