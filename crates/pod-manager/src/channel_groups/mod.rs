//! Control of channel groups: control descriptors are opened, and a thread of its own makes the controls.
//!
//! Which groups are under control, and which control comes next, is decided in [`sluice_core::processes`] and
//! [`sluice_core::channel_groups`].

mod control;
mod escrow;
mod executor;
mod group_check;

pub(crate) use control::allowed_controls;
pub use control::{Cause, ChannelControl, ControlDriver, ControlFailure, Nvrm};
pub(crate) use escrow::{EscrowClient, EscrowCopy};
pub(crate) use executor::{ControlExecutor, ControlReport, ControlRequest};

use crate::announcement::Descriptors;
use crate::closer::Closer;
use sluice_comm::attach::ContextHandles;
use sluice_core::channel_groups::GroupId;
use sluice_core::processes::{Announcement, ControlDescriptorId};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tracing::warn;

/// How long the end of the manager waits until all groups have the driver's defaults again.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time between two checks of all groups.
const CHECK_INTERVAL_NS: u64 = 500_000_000;

/// Control descriptors that were opened.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) contexts: Vec<ContextHandles>,
    /// By the index that groups name. `None`: no group names it, or it is no control descriptor.
    pub(crate) descriptors: Vec<Option<ControlDescriptorId>>,
    /// Why a descriptor was not opened: the first reason.
    pub(crate) failure: Option<String>,
}

/// The driver, and the thread that makes the controls.
pub(crate) struct GroupControls {
    /// `None`: controls are switched off.
    driver: Option<Box<dyn ControlDriver>>,
    executor: ControlExecutor,
    closer: Closer,
    /// When the groups are checked next.
    next_check: u64,
    /// Number of the last control descriptor.
    last: u64,
}

impl GroupControls {
    pub(crate) fn new(
        driver: Option<Box<dyn ControlDriver>>,
        executor: ControlExecutor,
        closer: Closer,
    ) -> Self {
        Self { driver, executor, closer, next_check: 0, last: 0 }
    }

    /// Whether groups are controlled at all.
    pub(crate) fn are_on(&self) -> bool {
        self.driver.is_some()
    }

    /// When the groups are checked next, if there are some.
    pub(crate) fn next_deadline(&self, has_groups: bool) -> Option<u64> {
        has_groups.then_some(self.next_check)
    }

    /// Requests the check of all groups if it is due. `alternating`: the groups that are enabled beside the holder's.
    pub(crate) fn check_if_due(
        &mut self,
        has_groups: bool,
        alternating: impl FnOnce() -> Vec<GroupId>,
        now: u64,
    ) {
        if has_groups && now >= self.next_check {
            self.next_check = now.saturating_add(CHECK_INTERVAL_NS);
            self.request(ControlRequest::Check(alternating()));
        }
    }

    /// Has the control executor do something.
    pub(crate) fn request(&self, request: ControlRequest) {
        self.executor.request(request);
    }

    /// Opens the control descriptors that the groups of an announcement name. With a pidfd of the process, copies go to the escrow; without
    /// a copy in escrow only the process itself can enable the groups again.
    pub(crate) fn open(
        &mut self,
        announcement: Announcement<Descriptors>,
        pidfd: Option<&OwnedFd>,
    ) -> Opened {
        let Announcement { contexts, descriptors } = announcement;
        let used: BTreeSet<u32> = contexts.iter().map(|context| context.descriptor).collect();
        let mut opened = Opened { contexts, ..Opened::default() };
        let fds = match descriptors.take() {
            Ok(fds) => fds,
            Err(why) => {
                opened.failure = Some(format!("a descriptor cannot be copied: {why}"));
                return opened;
            }
        };
        for (index, fd) in (0..).zip(fds) {
            let id = if used.contains(&index) {
                self.open_one(fd, pidfd, &mut opened.failure)
            } else {
                self.close(fd)
            };
            opened.descriptors.push(id);
        }
        opened
    }

    fn open_one(
        &mut self,
        fd: OwnedFd,
        pidfd: Option<&OwnedFd>,
        failure: &mut Option<String>,
    ) -> Option<ControlDescriptorId> {
        let Some(driver) = &mut self.driver else { return self.close(fd) };
        let copy = pidfd.filter(|_| self.executor.wants_copies).and_then(|pidfd| {
            Some(EscrowCopy { descriptor: fd.try_clone().ok()?, process: pidfd.try_clone().ok()? })
        });
        match driver.open(fd) {
            Ok(control) => Some(self.add(control, copy)),
            Err((fd, why)) => {
                failure.get_or_insert(why);
                self.closer.close(copy);
                self.close(fd)
            }
        }
    }

    fn close(&self, fd: OwnedFd) -> Option<ControlDescriptorId> {
        self.closer.close(fd);
        None
    }

    /// Hands a control descriptor to the control executor.
    pub(crate) fn add(
        &mut self,
        control: Box<dyn ChannelControl>,
        copy: Option<EscrowCopy>,
    ) -> ControlDescriptorId {
        self.last += 1;
        let id = ControlDescriptorId(self.last);
        self.request(ControlRequest::Open(id, control, copy));
        id
    }

    /// Returns all groups to the driver's defaults, at the end of the manager.
    pub(crate) fn restore(self) {
        if !self.executor.restore(RESTORE_TIMEOUT) {
            warn!(
                "the driver did not restore all channel groups within {RESTORE_TIMEOUT:?}: their own hooks enable them"
            );
        }
    }
}
