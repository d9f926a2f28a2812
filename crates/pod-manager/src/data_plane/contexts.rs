//! What a process announces is taken under control, if it may be.

use super::DataPlane;
use super::announcement::{Announcement, PutOff, Until, handles_of};
use super::frames::Outcome;
use crate::channels::{ChannelControl, Line, Order, Spare};
use crate::reason::Reason;
use sluice_comm::attach::{ATTACH_VERSION, ContextHandles};
use sluice_core::ProcessId;
use sluice_core::steering::GroupId;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use tracing::{debug, warn};

/// Whether something may be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// It may.
    Now,
    /// Not before this time.
    At(u64),
    /// Not at all.
    Never,
}

/// Groups of one client's processes that are kept.
const MOST_OF_CLIENT: usize = 64;

/// Groups of all clients that are kept.
const MOST: usize = 1024;

impl DataPlane {
    /// A process has other contexts than before.
    pub(super) fn replace_contexts(
        &mut self,
        number: u64,
        id: ProcessId,
        version: u32,
        fds: &mut Vec<OwnedFd>,
    ) -> Outcome {
        if version != ATTACH_VERSION {
            return Err(Reason::WrongVersion { found: version, expected: ATTACH_VERSION });
        }
        if self.processes.get(&id).is_none_or(|process| process.token != Some(number)) {
            return Err(Reason::OutOfOrder("CONTEXTS on the memory channel"));
        }
        let announcement = Announcement::read(fds, &self.closer)?;
        self.announce(id, announcement);
        Ok(())
    }

    /// Takes a process's groups under control, in place of those that it had, if all of them can be. One context that goes
    /// around the turns is as good as none that keeps them.
    ///
    /// What may not be announced yet is put off until it may be; until then the process takes turns by token.
    pub(super) fn announce(&mut self, id: ProcessId, announcement: Announcement) {
        self.helm.put_off.remove(&id);
        let now = self.clock.now_ns();
        let allowed = if self.helm.controls() {
            self.may_announce(id, &announcement.contexts, now)
        } else {
            Allowed::Never
        };
        match allowed {
            Allowed::Now if self.has_to_be_proven(id, &announcement) => self.have_proven(id, announcement),
            Allowed::Now => self.take(id, announcement),
            Allowed::Never => self.take(id, announcement.without_contexts()),
            Allowed::At(at) => {
                self.take(id, Announcement::nothing(&self.closer));
                self.helm.put_off.insert(id, PutOff { announcement, until: Until::Time(at) });
            }
        }
    }

    /// Announces what was put off and may be announced now.
    pub(super) fn announce_put_off(&mut self) {
        let now = self.clock.now_ns();
        let due = self
            .helm
            .put_off
            .iter()
            .filter(|(_, put_off)| put_off.at().is_some_and(|at| at <= now))
            .map(|(id, _)| *id);
        for id in due.collect::<Vec<_>>() {
            if let Some(PutOff { announcement, .. }) = self.helm.put_off.remove(&id) {
                self.announce(id, announcement);
            }
        }
    }

    pub(super) fn take(&mut self, id: ProcessId, mut announcement: Announcement) {
        let Some(process) = self.processes.get(&id) else { return };
        let Some(client) = self.clients.get(process.client) else { return };
        let class = client.definition.spec.class;
        let (pid, whose) = (process.pid, (process.client, class));
        let now = self.clock.now_ns();
        let mut contexts = std::mem::take(&mut announcement.contexts);
        let descriptors = std::mem::take(&mut announcement.descriptors);
        let lines = self.adopt(id, descriptors);
        let stayed: BTreeSet<GroupId> =
            contexts.iter().filter_map(|context| self.helm.unchanged(id, context)).collect();
        let line_of = |context: &ContextHandles| *lines.get(context.descriptor as usize)?;
        if !contexts.iter().all(|context| line_of(context).is_some()) {
            contexts.clear();
        }
        let donors = self.take_over(id, &contexts);
        let mut groups = Vec::new();
        for context in contexts {
            let Some(line) = line_of(&context) else { continue };
            groups.push(self.helm.add(id, pid, line, context));
        }
        for line in lines.iter().flatten() {
            self.helm.executor.order(Order::Close(*line));
        }
        let count = groups.len();
        let steered = self.helm.steering.announce(id, whose, (groups, &stayed), &mut self.tokens, now);
        debug!(process = ?id, groups = count, steered, "contexts announced");
        self.follow(id);
        for donor in donors {
            // Whoever has nothing left takes no turns.
            if !self.helm.groups.values().any(|owned| owned.process == donor) {
                self.unsteer(donor);
                self.follow(donor);
            }
            self.take_in_again(donor);
        }
    }

    /// What a process announces is its own, though it was found at an adopted process of the same client before: a child that has
    /// inherited its file. The groups keep their numbers. Whose they were.
    fn take_over(&mut self, id: ProcessId, contexts: &[ContextHandles]) -> BTreeSet<ProcessId> {
        let Some(process) = self.processes.get(&id) else { return BTreeSet::new() };
        let (client, pid) = (process.client, process.pid);
        let announced: BTreeSet<(u32, u32)> = contexts.iter().map(handles_of).collect();
        let mut donors = BTreeSet::new();
        for owned in self.helm.groups.values_mut().filter(|owned| owned.process != id) {
            let owner = self.processes.get(&owned.process);
            let adopted = owner.is_some_and(|owner| owner.adopted && owner.client == client);
            if adopted && announced.contains(&handles_of(&owned.context)) {
                donors.insert(owned.process);
                (owned.process, owned.pid) = (id, pid);
            }
        }
        donors
    }

    /// Whether a process may announce these groups now: each costs controls, for which others wait, and has to be looked at
    /// before each control. Those that it has already cost nothing.
    pub(super) fn may_announce(&mut self, id: ProcessId, contexts: &[ContextHandles], now: u64) -> Allowed {
        let Some(client) = self.processes.get(&id).map(|process| process.client) else {
            return Allowed::Never;
        };
        let groups = contexts.len();
        let fresh = contexts.iter().filter(|context| self.helm.unchanged(id, context).is_none()).count();
        let its =
            |process: &ProcessId| self.processes.get(process).is_some_and(|process| process.client == client);
        let owners = || self.helm.groups.values().map(|owned| owned.process).filter(|owner| *owner != id);
        let fits =
            owners().filter(its).count() + groups <= MOST_OF_CLIENT && owners().count() + groups <= MOST;
        let allowance = self.helm.allowances.entry(client).or_default();
        if groups == 0 || fits && allowance.take(fresh, now) {
            return Allowed::Now;
        }
        // What it has now it gives back meanwhile, so all of it is announced anew.
        let at = allowance.ready_at(groups).filter(|_| fits);
        self.meters.steering.announcements_refused.inc();
        let peer = self.processes.get(&id).map_or("", |process| &process.label);
        if self.throttle.pass("announcement", now).is_some() {
            warn!(peer, "its client announces too many contexts, or too often: it takes turns by token");
        }
        at.map_or(Allowed::Never, |at| Allowed::At(at.max(now)))
    }

    /// Takes the descriptors that lead to a driver; says so of those that do not.
    fn adopt(&mut self, id: ProcessId, descriptors: Vec<OwnedFd>) -> Vec<Option<Line>> {
        let mut lines = Vec::new();
        for fd in descriptors {
            let process = self.processes.get(&id).and_then(|process| process.pidfd.as_ref());
            let adopted = self.helm.adopt(fd, process);
            lines.push(match adopted {
                Ok(line) => Some(line),
                Err((fd, why)) => {
                    self.closer.close(fd);
                    self.complain_of_descriptor(id, &why);
                    None
                }
            });
        }
        lines
    }

    fn complain_of_descriptor(&mut self, id: ProcessId, why: &str) {
        self.meters.steering.descriptors_refused.inc();
        let peer = self.processes.get(&id).map_or("", |process| &process.label);
        if self.throttle.pass("descriptor", self.clock.now_ns()).is_some() {
            warn!(peer, "its contexts cannot be controlled, it takes turns by token: {why}");
        }
    }
}

/// The ways to the driver and the groups behind them.
impl super::steering::Helm {
    /// Whether anything is controlled at all.
    fn controls(&self) -> bool {
        self.adopt.is_some()
    }

    pub(super) fn adopt(
        &mut self,
        fd: OwnedFd,
        process: Option<&OwnedFd>,
    ) -> Result<Line, (OwnedFd, String)> {
        let Some(adopt) = &mut self.adopt else { return Err((fd, "controls are switched off".into())) };
        let process = process.filter(|_| self.executor.deposits());
        // Without descriptors to spare its own process is all that can help it.
        let spare = process.and_then(|process| {
            Some(Spare { descriptor: fd.try_clone().ok()?, process: process.try_clone().ok()? })
        });
        let control: Box<dyn ChannelControl> = adopt.adopt(fd)?;
        Ok(self.open(control, spare))
    }

    /// Hands a way to the driver to whoever makes the controls.
    pub(super) fn open(&mut self, control: Box<dyn ChannelControl>, spare: Option<Spare>) -> Line {
        self.last += 1;
        let line = Line(self.last);
        self.executor.order(Order::Open(line, control, spare));
        line
    }

    /// The group that a process has under control as it announces it, whichever descriptor leads to it now.
    pub(super) fn unchanged(&self, id: ProcessId, context: &ContextHandles) -> Option<GroupId> {
        let mut its = self.groups.iter().filter(|(_, owned)| owned.process == id);
        let descriptor = context.descriptor;
        let same = |owned: &super::steering::Owned| {
            handles_of(&owned.context) == handles_of(context)
                && ContextHandles { descriptor, ..owned.context.clone() } == *context
        };
        its.find(|(group, owned)| same(owned) && self.steering.owns(id, **group)).map(|(group, _)| *group)
    }

    /// Takes a group under control. One that is known keeps its number, whatever has become of it meanwhile.
    pub(super) fn add(
        &mut self,
        id: ProcessId,
        pid: Option<i32>,
        line: Line,
        context: ContextHandles,
    ) -> GroupId {
        let handles = handles_of(&context);
        let known = self.groups.iter().find(|(_, owned)| {
            let its = owned.process == id || pid.is_some() && owned.pid == pid;
            its && handles_of(&owned.context) == handles
        });
        let group = known.map(|(group, _)| *group).unwrap_or_else(|| {
            self.last += 1;
            GroupId(self.last)
        });
        self.groups.insert(
            group,
            super::steering::Owned { process: id, pid, context: context.clone(), stuck: false },
        );
        self.executor.order(Order::Add(group, line, context));
        group
    }
}
