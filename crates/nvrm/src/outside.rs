//! The channel groups of a process that tells nobody of them: it has no hook, or goes around it.
//!
//! The process's own descriptors of the control device are copied (`pidfd_getfd`: the right to trace the process is needed, its
//! cooperation is not), and the driver is asked through them what its handles are. Nothing that it asks changes anything.
//!
//! A copy keeps the GPU memory of a process that has ended. So whoever keeps a [`Tenant`] looks at [`Tenant::has_ended`] and
//! drops it; and a controller that dies while groups stand leaves them so, for another to start.

mod files;
mod newest;
mod walk;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sluice_comm::attach::ContextHandles;
use thiserror::Error;

use crate::{ControlError, Controls};

pub use files::descriptors;
pub use newest::newest_client;
pub use walk::{Ask, CLIENTS, Limits, Tree, Unwalked, walk};

/// Why a process cannot be controlled from outside.
#[derive(Debug, Error)]
pub enum Unreachable {
    /// There is no such process, or its descriptors cannot be copied.
    #[error("descriptors of process {pid}: {why}")]
    Process {
        /// Its id.
        pid: i32,
        /// What the kernel says. `EPERM`: CAP_SYS_PTRACE is missing.
        #[source]
        why: io::Error,
    },
    /// It has no descriptor of the control device.
    #[error("process {0} has no descriptor of the NVIDIA control device: it does not use a GPU")]
    NoDriver(i32),
    /// It has the control device open, and no group with channels on it that could be found.
    #[error("process {0} uses the driver, and no channel group of it is found")]
    NoGroups(i32),
    /// It has more descriptors of the control device than any program needs.
    #[error("process {0} has more than {MOST_FILES} descriptors of the control device")]
    TooMany(i32),
    /// The driver answers none of the questions, or there are groups that cannot be stopped.
    #[error("channel groups of process {pid}: {why}")]
    Groups {
        /// Its id.
        pid: i32,
        /// What is missing.
        why: String,
    },
}

/// A process whose channel groups were found.
#[derive(Debug)]
pub struct Tenant {
    pid: i32,
    process: OwnedFd,
    ways: Vec<Way>,
}

/// One open file of a process, and the compute groups that are controlled over it.
#[derive(Debug)]
pub struct Way {
    descriptor: OwnedFd,
    controls: Controls,
    groups: Vec<Group>,
}

impl Way {
    /// A copy of the process's descriptor, and the groups behind it; in all of them the descriptor is number 0.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, Vec<ContextHandles>) {
        (self.descriptor, self.groups.into_iter().map(|group| group.handles).collect())
    }

    /// Leaves out the groups of other GPUs than this one, by the uuid as the driver spells it ("GPU-...").
    ///
    /// # Errors
    /// [`ControlError`]: which GPU a group is on cannot be told.
    pub fn keep_gpu(&mut self, uuid: &str) -> Result<(), ControlError> {
        let mut kept = Vec::new();
        for group in std::mem::take(&mut self.groups) {
            if self.controls.gpu_uuid(group.handles.client, group.handles.subdevice)? == uuid {
                kept.push(group);
            }
        }
        self.groups = kept;
        Ok(())
    }
}

/// Descriptors of the control device that are looked at: a program has one or two, and each costs thousands of questions.
pub const MOST_FILES: usize = 32;

#[derive(Debug)]
struct Group {
    handles: ContextHandles,
    /// As it was found.
    slice_us: u64,
}

/// The open files of a process that lead to compute groups. `process` is its pidfd: nothing is copied from another process that
/// was given the number since. `newest` is a client made just now ([`newest_client`]): older ones are below it.
///
/// # Errors
/// [`Unreachable`]; also if any group could not be stopped: a process of which a part goes on does not stand.
pub fn ways(
    process: BorrowedFd<'_>,
    pid: i32,
    simulated: bool,
    newest: Option<u32>,
) -> Result<Vec<Way>, Unreachable> {
    let copies = files::of(process, pid, simulated).map_err(|why| Unreachable::Process { pid, why })?;
    match copies.len() {
        0 => return Err(Unreachable::NoDriver(pid)),
        1..=MOST_FILES => {}
        _ => return Err(Unreachable::TooMany(pid)),
    }
    let groups = |why: String| Unreachable::Groups { pid, why };
    let limits = Limits::below(newest);
    let mut ways: Vec<Way> = Vec::new();
    let mut seen: Vec<u32> = Vec::new();
    for (descriptor, controls) in copies {
        // Several descriptors may be one open file; one on which no client was found is looked at again.
        let again = |client: &u32| controls.class(*client, *client).is_ok_and(|class| class.is_some());
        if seen.iter().any(again) {
            continue;
        }
        let tree = walk(&controls, &limits).map_err(|why| groups(why.to_string()))?;
        seen.extend(&tree.clients);
        let found = tree.into_groups().map_err(groups)?;
        let found = found.into_iter().map(|handles| {
            let slice_us = controls.timeslice(handles.client, handles.channel_group)?;
            Ok(Group { handles, slice_us })
        });
        let found: Result<Vec<_>, ControlError> = found.collect();
        let found = found.map_err(|why| groups(format!("its time slice: {why}")))?;
        if !found.is_empty() {
            ways.push(Way { descriptor, controls, groups: found });
        }
    }
    if ways.is_empty() { Err(Unreachable::NoGroups(pid)) } else { Ok(ways) }
}

impl Tenant {
    /// Finds the compute groups of a process. `newest` is a client made just now ([`newest_client`]): older ones are below it.
    ///
    /// # Errors
    /// [`Unreachable`]; also if any group could not be stopped: a process of which a part goes on does not stand.
    pub fn find(pid: i32, simulated: bool, newest: Option<u32>) -> Result<Self, Unreachable> {
        let process = sluice_sys::pidfd::open(pid).map_err(|why| Unreachable::Process { pid, why })?;
        let ways = ways(process.as_fd(), pid, simulated, newest)?;
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
