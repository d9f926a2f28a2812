//! A process that is controlled without its cooperation: its copied control descriptors, and the channel groups behind them.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use sluice_comm::attach::ContextHandles;

use super::group_discovery::{GroupDiscovery, ScannedProcess};
use super::{DiscoveryError, ObjectTree, WalkLimits};
use crate::{ControlError, Controls};

/// A process of which the channel groups were found.
#[derive(Debug)]
pub struct DiscoveredProcess {
    pid: i32,
    pidfd: OwnedFd,
    descriptors: Vec<DiscoveredDescriptor>,
}

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
        let descriptors = discovery.inspect(&process, &numbers, None, &WalkLimits::default())?;
        Ok(Self { pid, pidfd, descriptors })
    }

    /// The process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether the process has ended. The caller then drops this value, because its descriptors keep the process's GPU memory.
    pub fn has_ended(&self) -> bool {
        sluice_sys::pidfd::has_ended(self.pidfd.as_fd())
    }

    /// Its compute groups.
    pub fn groups(&self) -> impl Iterator<Item = &ContextHandles> {
        self.descriptors.iter().flat_map(|descriptor| &descriptor.groups).map(|group| &group.handles)
    }

    /// Disables all groups. If one cannot be disabled, enables the others again.
    /// Errors: [`ControlError`] of the first group that could not be disabled.
    pub fn stop(&self) -> Result<(), ControlError> {
        let stopped = self.for_each_group(|controls, group| {
            controls.disable(group.handles.client, group.handles.subdevice, &group.handles.channels)
        });
        if stopped.is_err() {
            let _ = self.start();
        }
        stopped
    }

    /// Enables all groups, also those after one that could not be enabled.
    /// Errors: [`ControlError`] of the first group that could not be enabled.
    pub fn start(&self) -> Result<(), ControlError> {
        self.for_each_group(|controls, group| {
            controls.enable(group.handles.client, group.handles.subdevice, &group.handles.channels)
        })
    }

    /// Sets the time slice of all groups, at least 1 µs.
    /// Errors: [`ControlError`] of the first group for which the driver refused it.
    pub fn set_slice(&self, us: u64) -> Result<(), ControlError> {
        self.for_each_group(|controls, group| {
            controls.set_timeslice(group.handles.client, group.handles.channel_group, us)
        })
    }

    /// Sets all groups to the time slices that they had when they were found.
    /// Errors: [`ControlError`] of the first group for which the driver refused it.
    pub fn restore_slices(&self) -> Result<(), ControlError> {
        self.for_each_group(|controls, group| {
            controls.set_timeslice(group.handles.client, group.handles.channel_group, group.slice_us)
        })
    }

    /// Makes a control on every group, also after an error; returns the first error.
    fn for_each_group(
        &self,
        control: impl Fn(&Controls, &Group) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let mut result = Ok(());
        for descriptor in &self.descriptors {
            for group in &descriptor.groups {
                result = result.and(control(&descriptor.controls, group));
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
    pub(super) groups: Vec<Group>,
}

/// A channel group, and the time slice that it had when it was found.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) handles: ContextHandles,
    pub(super) slice_us: u64,
}

impl DiscoveredDescriptor {
    /// The copy of the process's descriptor, and the groups behind it. Each group names the descriptor by index 0.
    pub fn into_parts(self) -> (OwnedFd, Vec<ContextHandles>) {
        (self.descriptor, self.groups.into_iter().map(|group| group.handles).collect())
    }
}

/// The groups of a tree that are on this GPU, by its UUID as the driver spells it ("GPU-..."), or all groups. Returns also whether
/// groups of other GPUs were left out.
/// Errors: a text that names a group that could not be disabled, or the driver's error instead of an answer.
pub(super) fn groups_on(
    controls: &Controls,
    tree: ObjectTree,
    gpu: Option<&str>,
) -> Result<(Vec<Group>, bool), String> {
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
    let groups = found.into_iter().map(|handles| {
        let slice_us = controls.timeslice(handles.client, handles.channel_group)?;
        Ok(Group { handles, slice_us })
    });
    let groups: Result<Vec<_>, ControlError> = groups.collect();
    Ok((groups.map_err(|why| format!("its time slice: {why}"))?, has_other_gpus))
}
