//! A process that is held from outside.

use std::os::fd::{AsFd, OwnedFd};

use sluice_comm::attach::ContextHandles;

use super::searcher::{Process, Searcher};
use super::way::{Group, Way};
use super::{Limits, Unreachable};
use crate::{ControlError, Controls};

/// A process whose channel groups were found.
#[derive(Debug)]
pub struct Tenant {
    pid: i32,
    process: OwnedFd,
    ways: Vec<Way>,
}

impl Tenant {
    /// Finds the compute groups of a process. `newest` is a client made just now ([`newest_client`]): older ones are below it.
    ///
    /// # Errors
    /// [`Unreachable`]; also if any group could not be stopped: a process of which a part goes on does not stand.
    pub fn find(pid: i32, simulated: bool, newest: Option<u32>) -> Result<Self, Unreachable> {
        let process = sluice_sys::pidfd::open(pid).map_err(|why| Unreachable::Process { pid, why })?;
        let whom = Process { key: (pid, 0), process: process.as_fd(), crowd: "" };
        let ways = Searcher::once(simulated, newest).look(&whom, None, &Limits::default())?;
        Ok(Self { pid, process, ways })
    }

    /// The process's id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it has ended: then this has to be dropped, for it keeps the process's GPU memory.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        sluice_sys::pidfd::has_ended(self.process.as_fd())
    }

    /// Its compute groups.
    pub fn groups(&self) -> impl Iterator<Item = &ContextHandles> {
        self.ways.iter().flat_map(|way| &way.groups).map(|group| &group.handles)
    }

    /// Takes all groups off the GPU and keeps them off. If one cannot be stopped, those that were are started again.
    ///
    /// # Errors
    /// [`ControlError`] of the first that could not be stopped.
    pub fn stop(&self) -> Result<(), ControlError> {
        let stopped = self.each(|controls, group| {
            controls.disable(group.handles.client, group.handles.subdevice, &group.handles.channels)
        });
        if stopped.is_err() {
            let _ = self.start();
        }
        stopped
    }

    /// Lets all groups run, also those behind one that could not be started.
    ///
    /// # Errors
    /// [`ControlError`] of the first that could not be started.
    pub fn start(&self) -> Result<(), ControlError> {
        self.each(|controls, group| {
            controls.enable(group.handles.client, group.handles.subdevice, &group.handles.channels)
        })
    }

    /// Sets the time slice of all groups in microseconds, at least 1.
    ///
    /// # Errors
    /// [`ControlError`] of the first that was refused.
    pub fn set_slice(&self, us: u64) -> Result<(), ControlError> {
        self.each(|controls, group| {
            controls.set_timeslice(group.handles.client, group.handles.channel_group, us)
        })
    }

    /// Gives all groups the slices that they had when they were found.
    ///
    /// # Errors
    /// [`ControlError`] of the first that was refused.
    pub fn restore_slices(&self) -> Result<(), ControlError> {
        self.each(|controls, group| {
            controls.set_timeslice(group.handles.client, group.handles.channel_group, group.slice_us)
        })
    }

    /// Makes a control on every group, whatever became of it on others; the first error.
    fn each(&self, make: impl Fn(&Controls, &Group) -> Result<(), ControlError>) -> Result<(), ControlError> {
        let all = self.ways.iter().flat_map(|way| way.groups.iter().map(|group| (&way.controls, group)));
        let made: Vec<_> = all.map(|(controls, group)| make(controls, group)).collect();
        made.into_iter().collect()
    }
}
