//! Announcements of channel groups. Each group costs controls, which delay those of others, so announcements are limited. Where the
//! manager can inspect processes, it checks ownership first. Admitted groups replace those that the process had.

use super::{Announcement, ChannelGroups, ControlDescriptorId, PostponedUntil, handles_of};
use crate::effect::{Effect, Effects};
use crate::party::Party;
use crate::shared::Shared;
use crate::unhooked::Unhooked;
use crate::unhooked::ownership::NotChecked;
use sluice_comm::attach::ContextHandles;
use sluice_core::channel_groups::GroupId;
use sluice_core::ledger::Class;
use sluice_core::{ClientId, ProcessId};
use sluice_rate_limiter::{Rate, RateLimiter};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use tracing::{debug, warn};

/// When groups may be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Now,
    /// Not before this time.
    At(u64),
    /// The client has too many, or its groups cannot be controlled at all.
    Never,
    /// All clients together have too many. The client is not the cause.
    NoRoom,
}

/// Groups of one client's processes that are kept.
const MAX_OF_CLIENT: usize = 64;

/// Groups of all clients that are kept.
const MAX_GROUPS: usize = 1024;

/// New groups that one client may announce: 64 at once, and 10 a second in the long run. The controls of a group take about 1.5 ms, so
/// that is 1.5 % of the driver's time.
const ANNOUNCEMENTS: Rate = Rate::one_per(64, 100_000_000);

impl ChannelGroups {
    /// Takes a process's groups under control, in place of those that it had. What may not be announced yet is postponed; until then
    /// the process is scheduled by token.
    pub(crate) fn announce(
        &mut self,
        id: ProcessId,
        announcement: Announcement,
        unhooked: &mut Unhooked,
        shared: &mut Shared,
    ) -> Effects {
        self.postponed.remove(&id);
        self.no_room.remove(&id);
        self.record_announced(id, &announcement);
        // What comes under control is compared with what the process has.
        let key = shared.processes.get(id).and_then(|process| process.key);
        key.into_iter().for_each(|key| unhooked.inspect_next(key));
        if self.belongs_to_other(id, &announcement, shared) {
            return self.postpone_owned(id, announcement, shared);
        }
        match self.admit(id, &announcement.contexts, shared) {
            Admission::Now if unhooked.must_prove(id, &announcement, self, shared) => {
                match unhooked.request_proof(id, &announcement, shared) {
                    Ok(serial) => self.postpone(id, announcement, PostponedUntil::Proven(serial), shared),
                    Err(why) => {
                        if let NotChecked::Manager(_) = &why {
                            self.no_room.insert(id);
                        }
                        self.refuse(id, &why.to_string(), shared)
                    }
                }
            }
            Admission::Now => self.take(id, announcement, shared),
            Admission::Never => self.take_none(id, shared),
            Admission::NoRoom => {
                self.no_room.insert(id);
                self.take_none(id, shared)
            }
            Admission::At(at) => self.postpone(id, announcement, PostponedUntil::Time(at), shared),
        }
    }

    /// Makes the postponed announcements whose time has come.
    pub(crate) fn announce_due(&mut self, unhooked: &mut Unhooked, shared: &mut Shared) -> Effects {
        let now = shared.io.now();
        let is_due = |until: &PostponedUntil| matches!(until, PostponedUntil::Time(at) if *at <= now);
        let due: Vec<_> = self.postponed.extract_if(|_, (_, until)| is_due(until)).collect();
        let announced = due.into_iter();
        announced
            .flat_map(|(id, (announcement, _))| self.announce(id, announcement, unhooked, shared))
            .collect()
    }

    /// Refuses an announcement. Its groups count as unannounced.
    pub(super) fn refuse(&mut self, id: ProcessId, why: &str, shared: &mut Shared) -> Effects {
        self.announced.remove(&id);
        shared.io.metrics.channel_groups.announcements_refused.inc();
        let cause = shared.processes.client_of(id).into();
        if shared.io.may_log("claim", cause).is_some() {
            let peer = shared.processes.label(id);
            warn!(peer, "announced contexts were not proven, process is scheduled by token: {why}");
        }
        self.take_none(id, shared)
    }

    pub(super) fn postpone(
        &mut self,
        id: ProcessId,
        announcement: Announcement,
        until: PostponedUntil,
        shared: &mut Shared,
    ) -> Effects {
        self.postponed.insert(id, (announcement, until));
        self.take_none(id, shared)
    }

    /// Whether a process may announce these groups now. Groups that it has already cost nothing.
    pub(crate) fn admit(
        &mut self,
        id: ProcessId,
        contexts: &[ContextHandles],
        shared: &mut Shared,
    ) -> Admission {
        let Shared { processes, io, .. } = shared;
        let Some(client) = processes.client_of(id).filter(|_| self.driver.is_some()) else {
            return Admission::Never;
        };
        let (now, count) = (io.now(), contexts.len());
        let new = contexts.iter().filter(|context| self.unchanged(id, context).is_none()).count();
        let of_client = self.of_others(Some(id)).filter(|g| processes.client_of(g.process) == Some(client));
        let of_others = of_client.count();
        let kept = self.kept(id, contexts);
        let fits_client = of_others + count <= MAX_OF_CLIENT && of_others + count + kept <= 2 * MAX_OF_CLIENT;
        let has_room = self.of_others(Some(id)).count() + count + kept <= MAX_GROUPS;
        let fits = fits_client && has_room;
        let limit = self.announcement_limits.entry(client).or_insert(RateLimiter::full(ANNOUNCEMENTS));
        if count == 0 || fits && limit.try_take(new as u64, now) {
            return Admission::Now;
        }
        // It gives back all its groups meanwhile, so all of them are announced anew.
        let ready_at = limit.ready_at(count as u64).filter(|_| fits);
        io.metrics.channel_groups.announcements_refused.inc();
        if io.may_log("announcement", Party::Client(client)).is_some() {
            let peer = processes.label(id);
            if fits_client && !has_room {
                warn!(peer, "all clients together have {MAX_GROUPS} contexts: process is scheduled by token");
            } else {
                warn!(
                    peer,
                    "client announces too many contexts, or too often: process is scheduled by token"
                );
            }
        }
        if fits_client && !has_room {
            return Admission::NoRoom;
        }
        ready_at.map_or(Admission::Never, |at| Admission::At(at.max(now)))
    }

    /// How many groups a process keeps under control that are not among these: those of a stopped process.
    fn kept(&self, id: ProcessId, contexts: &[ContextHandles]) -> usize {
        if !self.scheduler.is_stopped(id) {
            return 0;
        }
        let announced: BTreeSet<(u32, u32)> = contexts.iter().map(handles_of).collect();
        self.contexts(id).filter(|context| !announced.contains(&handles_of(context))).count()
    }

    /// Whether a stopped process has groups under control that it announces no longer. They may be gone.
    pub(crate) fn keeps_unannounced(&self, id: ProcessId) -> bool {
        self.announced.get(&id).is_some_and(|announced| self.kept(id, announced) > 0)
    }

    /// Opens the control descriptors of a process; `None` for descriptors that are none.
    fn open_all(
        &mut self,
        id: ProcessId,
        descriptors: Vec<OwnedFd>,
        shared: &mut Shared,
    ) -> Vec<Option<ControlDescriptorId>> {
        let Shared { processes, io, .. } = shared;
        let cause = Party::from(processes.client_of(id));
        let pidfd = processes.get(id).and_then(|process| process.pidfd.as_ref());
        let open = |fd| {
            let (fd, why) = match self.open(fd, pidfd) {
                Ok(descriptor) => return Some(descriptor),
                Err(refused) => refused,
            };
            io.closer.close(fd);
            io.metrics.channel_groups.descriptors_refused.inc();
            if io.may_log("descriptor", cause).is_some() {
                let peer = processes.label(id);
                warn!(peer, "contexts cannot be controlled, process is scheduled by token: {why}");
            }
            None
        };
        descriptors.into_iter().map(open).collect()
    }

    /// Gives back the groups of a process: it is scheduled by token. A stopped process keeps them.
    fn take_none(&mut self, id: ProcessId, shared: &mut Shared) -> Effects {
        if self.scheduler.is_stopped(id) {
            return Effects::new();
        }
        self.take_all(id, Vec::new(), Vec::new(), shared)
    }

    pub(super) fn take(
        &mut self,
        id: ProcessId,
        mut announcement: Announcement,
        shared: &mut Shared,
    ) -> Effects {
        let contexts = std::mem::take(&mut announcement.contexts);
        self.take_all(id, contexts, std::mem::take(&mut announcement.descriptors), shared)
    }

    /// Takes a process's groups under control if all of them can be: a process with one context that is not controlled would run
    /// outside its quanta.
    fn take_all(
        &mut self,
        id: ProcessId,
        mut contexts: Vec<ContextHandles>,
        descriptors: Vec<OwnedFd>,
        shared: &mut Shared,
    ) -> Effects {
        let client = shared.processes.client_of(id);
        let Some((client, class)) = client.and_then(|id| Some((id, shared.clients.class(id)?))) else {
            shared.io.closer.close(descriptors);
            return Effects::new();
        };
        let descriptors = self.open_all(id, descriptors, shared);
        let unchanged: BTreeSet<GroupId> =
            contexts.iter().filter_map(|context| self.unchanged(id, context)).collect();
        let descriptor_of = |context: &ContextHandles| *descriptors.get(context.descriptor as usize)?;
        if !contexts.iter().all(|context| descriptor_of(context).is_some()) {
            contexts.clear();
        }
        let donors = self.reassign(id, &contexts, shared);
        let pid = shared.processes.get(id).and_then(|process| process.pid);
        let mut groups = Vec::new();
        for context in contexts {
            let Some(descriptor) = descriptor_of(&context) else { continue };
            groups.push(self.add(id, pid, descriptor, context));
        }
        for descriptor in descriptors.iter().flatten() {
            self.seal_descriptor(*descriptor);
        }
        let count = groups.len();
        let scheduled = self.schedule(id, (client, class), (groups, unchanged), shared);
        debug!(process = ?id, groups = count, hardware_scheduled = scheduled, "contexts announced");
        let mut effects = vec![Effect::SchedulingChanged(id)];
        for donor in donors {
            if !self.has_groups(donor) {
                effects.extend([Effect::ReleaseGroups(donor), Effect::SchedulingChanged(donor)]);
            }
            effects.push(Effect::InspectAgain(donor));
        }
        effects
    }

    /// Schedules a process by these groups, in place of those that it had. The settings of those that are unchanged are known. A stopped
    /// process keeps those that it had, because leaving them out would enable them.
    pub(crate) fn schedule(
        &mut self,
        id: ProcessId,
        owner: (ClientId, Class),
        (mut groups, mut unchanged): (Vec<GroupId>, BTreeSet<GroupId>),
        shared: &mut Shared,
    ) -> bool {
        if self.scheduler.is_stopped(id) {
            let its = self.of_process(id).map(|(group, _)| group).filter(|group| !groups.contains(group));
            let kept: Vec<GroupId> = its.filter(|group| self.scheduler.owns(id, *group)).collect();
            unchanged.extend(&kept);
            groups.extend(kept);
        }
        let now = shared.io.now();
        self.scheduler.announce(id, owner, (groups, &unchanged), &mut shared.grants.ledger, now)
    }
}
