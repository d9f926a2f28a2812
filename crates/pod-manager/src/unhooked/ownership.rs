//! The ownership check: where processes without the hook are searched for, an announced group has to belong to the process that
//! announces it, because any process can name the handles of any group.

use super::Unhooked;
use crate::channel_groups::{Announcement, ChannelGroups, handles_of};
use crate::clients::{Clients, Processes};
use crate::io::Io;
use crate::unhooked::scanning::OwnershipCheck;
use sluice_core::ProcessId;
use std::os::fd::AsFd;

impl Unhooked {
    /// Whether an announcement is checked from outside before it counts. Groups that the process has already were checked before.
    pub(crate) fn must_prove(
        &self,
        id: ProcessId,
        announcement: &Announcement,
        clients: &Clients,
        processes: &Processes,
        groups: &ChannelGroups,
    ) -> bool {
        let is_new = |context| groups.unchanged(id, context).is_none();
        self.search.is_some()
            && pod_of(id, clients, processes).is_some()
            && announcement.contexts.iter().any(is_new)
    }

    /// Requests the check of an announcement. Returns its number.
    pub(crate) fn request_proof(
        &mut self,
        id: ProcessId,
        announcement: &Announcement,
        clients: &Clients,
        processes: &Processes,
        io: &Io,
    ) -> Result<u64, String> {
        let process = processes.get(id).ok_or("there is no such process")?;
        let key = process.key.ok_or("the process is not visible from here")?;
        let pidfd = process.pidfd.as_ref().ok_or("the process is not visible from here")?;
        let pod = pod_of(id, clients, processes).unwrap_or_default().to_owned();
        let owner = (key, pod, pidfd.as_fd());
        let claim = OwnershipCheck::new(owner, &announcement.contexts, &announcement.descriptors, &io.closer);
        let claim = claim.map_err(|why| why.to_string())?;
        self.checks += 1;
        if let Some(search) = &self.search {
            search.check_ownership(id, self.checks, claim);
        }
        Ok(self.checks)
    }
}

/// Whether a group of this announcement was found at another process, which runs without the hook.
pub(crate) fn was_found_elsewhere(
    id: ProcessId,
    announcement: &Announcement,
    processes: &Processes,
    groups: &ChannelGroups,
) -> bool {
    let unhooked = |owner| processes.get(owner).is_some_and(|process| process.unhooked);
    let announced = |handles| announcement.contexts.iter().any(|context| handles_of(context) == handles);
    let mut others = groups.of_others(Some(id)).filter(|group| unhooked(group.process));
    others.any(|group| announced(handles_of(&group.context)))
}

/// The uid of the pod that a process is in.
fn pod_of<'a>(id: ProcessId, clients: &'a Clients, processes: &Processes) -> Option<&'a str> {
    clients.get(processes.client_of(id)?)?.definition.key.pod_uid()
}
