//! A control descriptor copied from a process, and the channel groups that it controls.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use sluice_comm::attach::ContextHandles;

use super::object_tree::ObjectTree;
use crate::{ControlError, Controls};

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
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, Vec<ContextHandles>) {
        (self.descriptor, self.groups.into_iter().map(|group| group.handles).collect())
    }
}

/// The groups of a tree that are on this GPU, by its UUID as the driver spells it ("GPU-..."), or all groups. Returns also whether
/// groups of other GPUs were left out.
///
/// # Errors
/// A text that names a group that could not be disabled, or the driver's error instead of an answer.
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
