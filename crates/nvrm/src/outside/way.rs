//! A way to the driver that was found, and what is behind it.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use sluice_comm::attach::ContextHandles;

use super::tree::Tree;
use crate::{ControlError, Controls};

/// One open file of a process, and the compute groups that are controlled over it.
#[derive(Debug)]
pub struct Way {
    pub(super) descriptor: OwnedFd,
    pub(super) controls: Controls,
    pub(super) groups: Vec<Group>,
}

/// A group, and its time slice as it was found.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) handles: ContextHandles,
    pub(super) slice_us: u64,
}

impl Way {
    /// A copy of the process's descriptor, and the groups behind it; in all of them the descriptor is number 0.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, Vec<ContextHandles>) {
        (self.descriptor, self.groups.into_iter().map(|group| group.handles).collect())
    }
}

/// The groups of a tree that are on this GPU, by its uuid as the driver spells it ("GPU-..."), or all; and whether any were left out.
///
/// # Errors
/// Which of ours could not be stopped, or what the driver says where it should answer.
pub(super) fn groups(
    controls: &Controls,
    tree: Tree,
    gpu: Option<&str>,
) -> Result<(Vec<Group>, bool), String> {
    let (mut elsewhere, mut seen) = (false, HashMap::new());
    let found = tree.into_groups(|client, subdevice| {
        let Some(gpu) = gpu else { return Ok(true) };
        let is_ours = match seen.get(&(client, subdevice)) {
            Some(is_ours) => *is_ours,
            None => {
                let uuid = controls.gpu_uuid(client, subdevice);
                uuid.map_err(|error| format!("which GPU they are on: {error}"))? == gpu
            }
        };
        seen.insert((client, subdevice), is_ours);
        elsewhere |= !is_ours;
        Ok(is_ours)
    })?;
    let found = found.into_iter().map(|handles| {
        let slice_us = controls.timeslice(handles.client, handles.channel_group)?;
        Ok(Group { handles, slice_us })
    });
    let found: Result<Vec<_>, ControlError> = found.collect();
    Ok((found.map_err(|why| format!("its time slice: {why}"))?, elsewhere))
}
