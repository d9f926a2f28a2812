//! The channel groups under control: which groups each process has announced, which of them the GPU schedules by quanta, and which
//! control comes next.
//!
//! `ChannelGroups` owns the scheduler, and with it the answer to "is this process hardware-scheduled". The pages, metrics and
//! stream gates derive from `ChannelGroups::is_hardware_scheduled`.

mod admission;
mod announcement;
mod comparison;
mod control;
mod escrow;
mod executor;
mod group_check;
mod group_owner;
mod kept_groups;
mod scheduling;

pub(crate) use admission::Admission;
pub(crate) use announcement::{Announcement, PostponedUntil, covers, handles_of};
pub(crate) use control::allowed_controls;
pub use control::{Cause, ChannelControl, ControlDriver, ControlFailure, Nvrm};
pub(crate) use escrow::{EscrowClient, EscrowCopy};
pub(crate) use executor::{ControlDescriptorId, ControlExecutor, ControlReport, ControlRequest};
pub(crate) use group_check::{Checks, GroupFinding};

use crate::effect::{Effect, Effects};
use crate::shared::Shared;
use kept_groups::KeptGroups;
use sluice_comm::attach::ContextHandles;
use sluice_core::channel_groups::{ChannelGroupScheduler, GroupId};
use sluice_core::{ClientId, ProcessId};
use sluice_rate_limiter::RateLimiter;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tracing::warn;

/// How long the end of the manager waits until all groups have the driver's defaults again.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time between two checks of all groups.
const CHECK_INTERVAL_NS: u64 = 500_000_000;
/// How long it may take until all groups are set anew.
const UNCHECKED_NS: u64 = 2_000_000_000;

/// A group under control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlledGroup {
    pub(crate) process: ProcessId,
    pub(crate) pid: Option<i32>,
    /// As it was announced last.
    pub(crate) context: ContextHandles,
}

/// All channel groups of one GPU that the manager knows.
pub(crate) struct ChannelGroups {
    pub(crate) scheduler: ChannelGroupScheduler,
    /// `None`: controls are switched off.
    driver: Option<Box<dyn ControlDriver>>,
    pub(crate) executor: ControlExecutor,
    groups: HashMap<GroupId, ControlledGroup>,
    /// How many groups each client may still announce.
    announcement_limits: HashMap<ClientId, RateLimiter>,
    postponed: HashMap<ProcessId, (Announcement, PostponedUntil)>,
    /// What each process announced last, unless it was refused.
    announced: HashMap<ProcessId, Vec<ContextHandles>>,
    /// Processes whose last announcement was refused because the manager had no room or no descriptor for it.
    no_room: HashSet<ProcessId>,
    /// Processes whose groups stayed under control when a connection closed.
    kept_groups: KeptGroups,
    /// When the groups are checked next.
    next_check: u64,
    /// Until then findings do not count.
    unchecked_until: u64,
    /// Number of the last group or control descriptor.
    last: u64,
}

impl ChannelGroups {
    pub(crate) fn new(
        scheduler: ChannelGroupScheduler,
        driver: Option<Box<dyn ControlDriver>>,
        executor: ControlExecutor,
    ) -> Self {
        Self {
            scheduler,
            driver,
            executor,
            groups: HashMap::new(),
            announcement_limits: HashMap::new(),
            postponed: HashMap::new(),
            announced: HashMap::new(),
            no_room: HashSet::new(),
            kept_groups: KeptGroups::default(),
            next_check: 0,
            unchecked_until: 0,
            last: 0,
        }
    }

    /// Whether the GPU schedules a process: its groups are enabled and disabled by quanta. No other part stores this.
    pub(crate) fn is_hardware_scheduled(&self, id: ProcessId) -> bool {
        self.scheduler.quantum_state(id).is_some()
    }

    /// When there is something to do, if no event comes before.
    pub(crate) fn next_deadline(&self, now: u64) -> Option<u64> {
        let postponed = self.postponed.values().filter_map(|(_, until)| match until {
            PostponedUntil::Time(at) => Some(*at),
            PostponedUntil::Proven(_) => None,
        });
        let check = (!self.groups.is_empty()).then_some(self.next_check);
        let mark = self.kept_groups.next_deadline();
        postponed.chain(self.scheduler.next_wakeup(now)).chain(check).chain(mark).min()
    }

    /// Requests the check of all groups if it is due.
    pub(crate) fn check_if_due(&mut self, now: u64) {
        if !self.groups.is_empty() && now >= self.next_check {
            self.next_check = now.saturating_add(CHECK_INTERVAL_NS);
            self.executor.request(ControlRequest::Check);
        }
    }

    /// The manager did not run, and hooks have enabled their groups and restored the slices meanwhile: all groups are set anew, and what is
    /// found until then is no violation.
    pub(crate) fn forget_checks(&mut self, now: u64) {
        self.unchecked_until = now.saturating_add(UNCHECKED_NS);
        self.executor.request(ControlRequest::ForgetChecks);
    }

    /// The connection of a process has closed, or was made anew, and its groups stay under control.
    pub(crate) fn keep_groups(&mut self, id: ProcessId, now: u64) {
        self.kept_groups.connection_changed(id, now);
    }

    /// Marks the settings of the groups as unknown that a hook may have set meanwhile.
    pub(crate) fn mark_kept_groups(&mut self, shared: &mut Shared) {
        let now = shared.io.now();
        for id in self.kept_groups.take_due(now) {
            self.scheduler.forget_settings(id, &mut shared.grants.ledger, now);
        }
    }

    /// The process that a finding is a violation of. A process that has closed its channel has enabled its groups itself, as its hook does
    /// then.
    pub(crate) fn violator(&self, finding: &GroupFinding, shared: &Shared) -> Option<ProcessId> {
        let id = self.groups.get(&finding.group)?.process;
        let process = shared.processes.get(id)?;
        let counts = process.is_attached() || process.unhooked;
        let now = shared.io.now();
        (counts && now >= self.unchecked_until && !self.kept_groups.is_excused(id, now)).then_some(id)
    }

    /// Whether an announcement of a process waits.
    pub(crate) fn is_postponed(&self, id: ProcessId) -> bool {
        self.postponed.contains_key(&id)
    }

    /// Whether the last announcement of a process was refused for a reason of the manager or the node.
    pub(crate) fn has_no_room(&self, id: ProcessId) -> bool {
        self.no_room.contains(&id)
    }

    /// Withdraws the postponed announcement of a process that is scheduled from outside from here on.
    pub(crate) fn withdraw_postponed(&mut self, id: ProcessId) {
        self.postponed.remove(&id);
    }

    /// Forgets a client that will not come back.
    pub(crate) fn forget_client(&mut self, id: ClientId) {
        self.announcement_limits.remove(&id);
    }

    /// The groups of a process.
    fn of_process(&self, id: ProcessId) -> impl Iterator<Item = (GroupId, &ControlledGroup)> {
        let its = self.groups.iter().filter(move |(_, group)| group.process == id);
        its.map(|(id, group)| (*id, group))
    }

    pub(crate) fn has_groups(&self, id: ProcessId) -> bool {
        self.of_process(id).next().is_some()
    }

    /// The groups of other processes, or of all without an id.
    pub(crate) fn of_others(&self, id: Option<ProcessId>) -> impl Iterator<Item = &ControlledGroup> {
        self.groups.values().filter(move |group| Some(group.process) != id)
    }

    /// The handles of a process's groups, without those that are being released.
    pub(crate) fn handles(&self, id: ProcessId) -> HashSet<(u32, u32)> {
        self.contexts(id).map(handles_of).collect()
    }

    /// A process's groups as they are controlled, without those that are being released.
    fn contexts(&self, id: ProcessId) -> impl Iterator<Item = &ContextHandles> {
        let kept = self.of_process(id).filter(move |(group, _)| self.scheduler.owns(id, *group));
        kept.map(|(_, group)| &group.context)
    }

    /// Opens a descriptor as a control descriptor. Returns it with the reason if it is none.
    pub(crate) fn open(
        &mut self,
        fd: OwnedFd,
        pidfd: Option<&OwnedFd>,
    ) -> Result<ControlDescriptorId, (OwnedFd, String)> {
        let Some(driver) = &mut self.driver else { return Err((fd, "controls are switched off".into())) };
        let pidfd = pidfd.filter(|_| self.executor.wants_copies);
        // Without a copy in escrow only its own process can enable the groups again.
        let copy = pidfd.and_then(|pidfd| {
            Some(EscrowCopy { descriptor: fd.try_clone().ok()?, process: pidfd.try_clone().ok()? })
        });
        let control = driver.open(fd)?;
        Ok(self.add_descriptor(control, copy))
    }

    /// Hands a control descriptor to the control executor.
    pub(crate) fn add_descriptor(
        &mut self,
        control: Box<dyn ChannelControl>,
        copy: Option<EscrowCopy>,
    ) -> ControlDescriptorId {
        self.last += 1;
        let id = ControlDescriptorId(self.last);
        self.executor.request(ControlRequest::Open(id, control, copy));
        id
    }

    /// No more groups follow for a control descriptor.
    pub(crate) fn seal_descriptor(&self, id: ControlDescriptorId) {
        self.executor.request(ControlRequest::Close(id));
    }

    /// Takes a group under control. A known group keeps its number.
    pub(crate) fn add(
        &mut self,
        id: ProcessId,
        pid: Option<i32>,
        descriptor: ControlDescriptorId,
        context: ContextHandles,
    ) -> GroupId {
        let handles = handles_of(&context);
        let known = self.groups.iter().find(|(_, group)| {
            let its = group.process == id || pid.is_some() && group.pid == pid;
            its && handles_of(&group.context) == handles
        });
        let number = known.map(|(number, _)| *number).unwrap_or_else(|| {
            self.last += 1;
            GroupId(self.last)
        });
        let group = ControlledGroup { process: id, pid, context: context.clone() };
        self.groups.insert(number, group);
        self.executor.request(ControlRequest::Add(number, descriptor, context));
        number
    }

    /// Forgets a group that has gone, or that this manager controls no longer.
    fn forget_group(&mut self, group: GroupId) -> Option<Effect> {
        self.scheduler.forget_group(group);
        self.executor.request(ControlRequest::Forget(group));
        self.groups.remove(&group).map(|group| Effect::DepartureSettled(group.process))
    }

    /// Forgets all groups of a process that has ended: the driver has freed them.
    pub(crate) fn forget_process(&mut self, id: ProcessId) -> Effects {
        self.announced.remove(&id);
        self.no_room.remove(&id);
        let its: Vec<GroupId> = self.of_process(id).map(|(group, _)| group).collect();
        its.into_iter().filter_map(|group| self.forget_group(group)).collect()
    }

    /// A process has closed its channel: its groups are released unless it ends.
    pub(crate) fn disconnected(&mut self, id: ProcessId, shared: &mut Shared) {
        self.postponed.remove(&id);
        self.scheduler.disconnect(id, &mut shared.grants.ledger, shared.io.now());
    }

    /// Releases the groups of a process that has left, or that attaches anew.
    pub(crate) fn release(&mut self, id: ProcessId, shared: &mut Shared) {
        self.announced.remove(&id);
        self.no_room.remove(&id);
        self.kept_groups.forget(id);
        self.release_groups(id, shared);
    }

    /// Releases a process's groups: it is token-scheduled from here on.
    pub(crate) fn release_groups(&mut self, id: ProcessId, shared: &mut Shared) {
        self.postponed.remove(&id);
        self.scheduler.remove_process(id, &mut shared.grants.ledger, shared.io.now());
    }

    /// Returns all groups to the driver's defaults, at the end of the manager.
    pub(crate) fn restore(self) {
        if !self.executor.restore(RESTORE_TIMEOUT) {
            warn!(
                "the driver did not restore all channel groups within {RESTORE_TIMEOUT:?}: their own hooks enable them"
            );
        }
    }

    /// Updates the gauges of postponed announcements, processes on probation and enforcement levels.
    pub(crate) fn refresh_gauges(&self, Shared { processes, io, .. }: &Shared) {
        let metrics = &io.metrics.channel_groups;
        metrics.announcements_waiting.set(i64::try_from(self.postponed.len()).unwrap_or(i64::MAX));
        metrics.on_probation.set(i64::try_from(self.scheduler.on_probation()).unwrap_or(i64::MAX));
        metrics.default_slices.set(i64::from(self.scheduler.default_slices()));
        let controlled = |id: ProcessId| self.scheduler.has_controlled_groups(id);
        let levels = processes.iter().filter_map(|(id, process)| process.enforcement_level(controlled(id)));
        metrics.set_levels(levels);
    }
}
