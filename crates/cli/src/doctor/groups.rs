//! Channel groups of programs that the doctor watches, and how they are left as they were found.

use std::sync::Arc;

use sluice_comm::attach::ContextHandles;
use sluice_nvrm::abi::CtxswStats;
use sluice_nvrm::{ControlError, Controls};

/// A channel group and the way to it.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) controls: Arc<Controls>,
    pub(super) handles: ContextHandles,
}

impl Group {
    fn set_slice(&self, us: u64) -> Result<(), ControlError> {
        self.controls.set_timeslice(self.handles.client, self.handles.channel_group, us)
    }

    fn slice(&self) -> Result<u64, ControlError> {
        self.controls.timeslice(self.handles.client, self.handles.channel_group)
    }

    fn start(&self) -> Result<(), ControlError> {
        self.controls.enable(self.handles.client, self.handles.subdevice, &self.handles.channels)
    }

    fn stop(&self) -> Result<(), ControlError> {
        self.controls.disable(self.handles.client, self.handles.subdevice, &self.handles.channels)
    }

    fn stats(&self) -> Result<CtxswStats, ControlError> {
        self.controls.ctxsw_stats(self.handles.client, self.handles.subdevice, self.handles.channel_group)
    }
}

/// The groups of one program. When this is dropped they run, with the slices that they had.
#[derive(Debug)]
pub(super) struct Steered {
    /// Each with the slice that it had, if the driver said.
    groups: Vec<(Group, Option<u64>)>,
    is_stopped: bool,
    is_sliced: bool,
}

impl Steered {
    /// Takes groups in hand.
    pub(super) fn new(groups: Vec<Group>) -> Self {
        let groups = groups.into_iter().map(|group| {
            let slice = group.slice().ok();
            (group, slice)
        });
        Self { groups: groups.collect(), is_stopped: false, is_sliced: false }
    }

    /// Gives every group this slice, in microseconds.
    pub(super) fn set_slice(&mut self, us: u64) -> Result<(), ControlError> {
        self.is_sliced = true;
        self.groups.iter().try_for_each(|(group, _)| group.set_slice(us))
    }

    /// Stops every group.
    pub(super) fn stop(&mut self) -> Result<(), ControlError> {
        self.is_stopped = true;
        self.groups.iter().try_for_each(|(group, _)| group.stop())
    }

    /// Starts every group, also after one that would not be started; the first refusal.
    pub(super) fn start(&mut self) -> Result<(), ControlError> {
        let started: Vec<_> = self.groups.iter().map(|(group, _)| group.start()).collect();
        started.into_iter().collect::<Result<(), _>>()?;
        self.is_stopped = false;
        Ok(())
    }

    /// Gives every group the slice that it had.
    pub(super) fn restore_slices(&mut self) -> Result<(), ControlError> {
        let had = self.groups.iter().filter_map(|(group, slice)| slice.map(|us| (group, us)));
        let restored: Vec<_> = had.map(|(group, us)| group.set_slice(us)).collect();
        restored.into_iter().collect::<Result<(), _>>()?;
        self.is_sliced = false;
        Ok(())
    }

    /// How often the first group was switched out.
    pub(super) fn stats(&self) -> Result<CtxswStats, ControlError> {
        self.groups.first().map_or(Ok(CtxswStats::default()), |(group, _)| group.stats())
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        // The programs are the doctor's own and end with it, and with them their groups: nothing is left behind either way.
        if self.is_sliced {
            let _ = self.restore_slices();
        }
        if self.is_stopped {
            let _ = self.start();
        }
    }
}
