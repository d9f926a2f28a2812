//! Channel groups of the doctor's programs. Their state is restored when they are dropped.

use std::sync::Arc;

use sluice_comm::attach::ContextHandles;
use sluice_nvrm::abi::CtxswStats;
use sluice_nvrm::{ControlError, Controls};

/// A channel group and its control descriptor.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) controls: Arc<Controls>,
    pub(super) handles: ContextHandles,
}

impl Group {
    fn set_slice(&self, us: u64) -> Result<(), ControlError> {
        self.controls.set_timeslice(self.handles.client, self.handles.channel_group, us)
    }

    fn enable(&self) -> Result<(), ControlError> {
        self.controls.enable(self.handles.client, self.handles.subdevice, &self.handles.channels)
    }
}

/// The groups of one program. Dropping this enables them and restores their time slices.
#[derive(Debug)]
pub(super) struct ControlledGroups {
    /// Each group with its original slice, if the driver reports it.
    groups: Vec<(Group, Option<u64>)>,
    is_disabled: bool,
    is_sliced: bool,
}

impl ControlledGroups {
    /// Reads the original slices of the groups.
    pub(super) fn new(groups: Vec<Group>) -> Self {
        let groups = groups.into_iter().map(|group| {
            let Group { controls, handles } = &group;
            let slice = controls.timeslice(handles.client, handles.channel_group).ok();
            (group, slice)
        });
        Self { groups: groups.collect(), is_disabled: false, is_sliced: false }
    }

    /// Gives every group this slice, in microseconds.
    pub(super) fn set_slice(&mut self, us: u64) -> Result<(), ControlError> {
        self.is_sliced = true;
        self.groups.iter().try_for_each(|(group, _)| group.set_slice(us))
    }

    pub(super) fn disable(&mut self) -> Result<(), ControlError> {
        self.is_disabled = true;
        self.groups.iter().try_for_each(|(Group { controls, handles }, _)| {
            controls.disable(handles.client, handles.subdevice, &handles.channels)
        })
    }

    /// Enables every group, even if one is refused. Returns the first error.
    pub(super) fn enable(&mut self) -> Result<(), ControlError> {
        let enabled: Vec<_> = self.groups.iter().map(|(group, _)| group.enable()).collect();
        enabled.into_iter().collect::<Result<(), _>>()?;
        self.is_disabled = false;
        Ok(())
    }

    pub(super) fn restore_slices(&mut self) -> Result<(), ControlError> {
        let had = self.groups.iter().filter_map(|(group, slice)| slice.map(|us| (group, us)));
        let restored: Vec<_> = had.map(|(group, us)| group.set_slice(us)).collect();
        restored.into_iter().collect::<Result<(), _>>()?;
        self.is_sliced = false;
        Ok(())
    }

    /// Context-switch counters of the first group.
    pub(super) fn stats(&self) -> Result<CtxswStats, ControlError> {
        self.groups.first().map_or(Ok(CtxswStats::default()), |(Group { controls, handles }, _)| {
            controls.ctxsw_stats(handles.client, handles.subdevice, handles.channel_group)
        })
    }
}

impl Drop for ControlledGroups {
    fn drop(&mut self) {
        // The programs end with the doctor, and their groups with them. So an error here leaves nothing behind.
        if self.is_sliced {
            let _ = self.restore_slices();
        }
        if self.is_disabled {
            let _ = self.enable();
        }
    }
}
