//! Announcements of channel groups: admitted, checked for ownership where the manager can look at processes from outside, and taken.

use super::EventLoop;
use crate::channel_groups::{Admission, Announcement, PostponedUntil};
use crate::connections::{ConnectionId, Outcome, Reason};
use crate::unhooked;
use crate::unhooked::scanning::{Obstacle, ObstacleKind, OwnershipProof};
use sluice_comm::attach::ATTACH_VERSION;
use sluice_core::ProcessId;
use std::os::fd::OwnedFd;
use tracing::warn;

impl EventLoop {
    /// A process has other contexts than before.
    pub(super) fn replace_contexts(
        &mut self,
        connection: ConnectionId,
        id: ProcessId,
        version: u32,
        fds: &mut Vec<OwnedFd>,
    ) -> Outcome {
        if version != ATTACH_VERSION {
            return Err(Reason::WrongVersion { found: version, expected: ATTACH_VERSION });
        }
        if self.processes.get(id).is_none_or(|process| process.token != Some(connection)) {
            return Err(Reason::OutOfOrder("CONTEXTS on the memory channel"));
        }
        let announcement = Announcement::read(fds, &self.io.closer)?;
        self.announce(id, announcement);
        Ok(())
    }

    /// Takes a process's groups under control, in place of those that it had. What may not be announced yet is postponed; until then
    /// the process is scheduled by token.
    pub(super) fn announce(&mut self, id: ProcessId, announcement: Announcement) {
        self.channel_groups.drop_postponed(id);
        match self.channel_groups.admit(id, &announcement.contexts, &self.processes, &mut self.io) {
            Admission::Now if self.must_prove(id, &announcement) => self.prove_ownership(id, announcement),
            Admission::Now => self.take_groups(id, announcement),
            Admission::Never => self.take_groups(id, announcement.without_contexts()),
            Admission::At(at) => self.postpone(id, announcement, PostponedUntil::Time(at)),
        }
    }

    fn take_groups(&mut self, id: ProcessId, announcement: Announcement) {
        let (clients, processes) = (&self.clients, &self.processes);
        let ledger = &mut self.grants.ledger;
        let effects = self.channel_groups.take(id, announcement, clients, processes, ledger, &mut self.io);
        self.carry_out(effects);
    }

    fn postpone(&mut self, id: ProcessId, announcement: Announcement, until: PostponedUntil) {
        self.take_groups(id, Announcement::of_no_groups(&self.io.closer));
        self.channel_groups.postpone(id, announcement, until);
    }

    fn must_prove(&self, id: ProcessId, announcement: &Announcement) -> bool {
        let groups = &self.channel_groups;
        self.unhooked.must_prove(id, announcement, &self.clients, &self.processes, groups)
    }

    fn prove_ownership(&mut self, id: ProcessId, announcement: Announcement) {
        let (clients, processes) = (&self.clients, &self.processes);
        match self.unhooked.request_proof(id, &announcement, clients, processes, &self.io) {
            Ok(serial) => self.postpone(id, announcement, PostponedUntil::Proven(serial)),
            Err(why) => self.refuse_announcement(id, announcement, &why),
        }
    }

    /// Takes the result of an ownership check, unless the process has announced other groups since, or has ended.
    pub(super) fn ownership_checked(&mut self, proof: OwnershipProof) {
        let OwnershipProof { process: id, serial, owns: holds } = proof;
        let Some(announcement) = self.channel_groups.take_proven(id, serial) else { return };
        let (processes, groups) = (&self.processes, &self.channel_groups);
        match holds {
            Ok(true) => self.take_groups(id, announcement),
            Ok(false) => self.refuse_announcement(id, announcement, "they belong to another process"),
            // A process that cannot be inspected is trusted with groups that were found nowhere else.
            Err(Obstacle { kind: ObstacleKind::NotPermitted, .. })
                if !unhooked::was_found_elsewhere(id, &announcement, processes, groups) =>
            {
                self.take_groups(id, announcement);
            }
            Err(obstacle) => self.refuse_announcement(id, announcement, &obstacle.text),
        }
    }

    fn refuse_announcement(&mut self, id: ProcessId, announcement: Announcement, why: &str) {
        self.io.metrics.channel_groups.announcements_refused.inc();
        if self.io.may_log("claim").is_some() {
            let peer = self.processes.label(id);
            warn!(peer, "announced contexts were not proven, process is scheduled by token: {why}");
        }
        self.take_groups(id, announcement.without_contexts());
    }
}
