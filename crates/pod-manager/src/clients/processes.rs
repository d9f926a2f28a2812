//! All processes, with the index from client to processes, and the departed ones whose end the manager still waits for.

mod departed;

use super::{Pages, Process};
use crate::io::Io;
use crate::poller::Source;
use crate::unhooked::scanning::GrantPageMapping;
use departed::Departed;
use nix::sys::epoll::EpollFlags;
use sluice_comm::page::Flags;
use sluice_core::{ClientId, ProcessId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tracing::warn;

/// All processes by id, by kernel identity and by client.
#[derive(Default)]
pub(crate) struct Processes {
    processes: BTreeMap<ProcessId, Process>,
    /// By pid and start time.
    by_key: HashMap<(i32, u64), ProcessId>,
    by_client: HashMap<ClientId, BTreeSet<ProcessId>>,
    /// Processes that have closed their connections and have groups under control still.
    departed: Departed,
    /// For new pages.
    pub(crate) page_flags: Flags,
    last: u64,
}

impl Processes {
    pub(crate) fn new(page_flags: Flags) -> Self {
        Self { page_flags, ..Self::default() }
    }

    /// Adds a process and watches for its end.
    pub(crate) fn add(&mut self, process: Process, io: &Io) -> ProcessId {
        self.last += 1;
        let id = ProcessId(self.last);
        if let Some(pidfd) = &process.pidfd
            && let Err(error) = io.poller.add(pidfd, Source::ProcessEnd(id), EpollFlags::EPOLLIN)
        {
            warn!(peer = %process.label, %error, "cannot watch for the end of a process: only its sockets will report it");
        } else if process.pidfd.is_some() {
            self.departed.watch_by(process.key, id, io);
        }
        if let Some(key) = process.key {
            self.by_key.insert(key, id);
        }
        self.by_client.entry(process.client).or_default().insert(id);
        self.processes.insert(id, process);
        id
    }

    /// Takes a process out. Its pidfd is still polled.
    pub(crate) fn remove(&mut self, id: ProcessId) -> Option<Process> {
        let process = self.processes.remove(&id)?;
        if let Some(key) = process.key {
            self.by_key.remove(&key);
        }
        if let Some(of_client) = self.by_client.get_mut(&process.client) {
            of_client.remove(&id);
            if of_client.is_empty() {
                self.by_client.remove(&process.client);
            }
        }
        Some(process)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    pub(crate) fn get(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.processes.get_mut(&id)
    }

    /// The pages of a process, if it has attached.
    pub(crate) fn pages(&self, id: ProcessId) -> Option<&Pages> {
        self.processes.get(&id)?.pages.as_ref()
    }

    pub(crate) fn find(&self, key: (i32, u64)) -> Option<ProcessId> {
        self.by_key.get(&key).copied()
    }

    pub(crate) fn client_of(&self, id: ProcessId) -> Option<ClientId> {
        self.processes.get(&id).map(|process| process.client)
    }

    /// The process's name for logs.
    pub(crate) fn label(&self, id: ProcessId) -> &str {
        self.processes.get(&id).map_or("", |process| &process.label)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        self.processes.iter().map(|(id, process)| (*id, process))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ProcessId, &mut Process)> {
        self.processes.iter_mut().map(|(id, process)| (*id, process))
    }

    /// The processes of a client.
    pub(crate) fn of_client(&self, client: ClientId) -> impl Iterator<Item = (ProcessId, &Process)> {
        let ids = self.by_client.get(&client).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.processes.get(id)?)))
    }

    /// The number of connections that a client's processes have or may still open. So a process that was admitted gets its second channel.
    pub(crate) fn due_connections_of(&self, client: ClientId) -> usize {
        self.of_client(client).map(|(_, process)| process.due_connections()).sum()
    }

    /// The ids of a client's processes, for loops that change them.
    pub(crate) fn ids_of_client(&self, client: ClientId) -> Vec<ProcessId> {
        self.by_client.get(&client).into_iter().flatten().copied().collect()
    }

    pub(crate) fn has_client(&self, client: ClientId) -> bool {
        self.by_client.contains_key(&client)
    }

    /// The kernel identities of the attached processes, without those that are scheduled from outside.
    pub(crate) fn attached_keys(&self) -> impl Iterator<Item = (i32, u64)> {
        let attached =
            self.processes.values().filter(|process| process.is_attached() && !process.misannounced);
        attached.filter_map(|process| process.key)
    }

    /// Where each attached process has mapped its grant page, by key.
    pub(crate) fn grant_pages(&self) -> Vec<((i32, u64), GrantPageMapping)> {
        let attached = self.processes.values().filter(|process| process.is_attached());
        let mapping = |process: &Process| Some((process.key?, process.pages.as_ref()?.grant_mapping()?));
        let mut mappings: Vec<_> = attached.filter_map(mapping).collect();
        mappings.sort_by_key(|(key, _)| *key);
        mappings
    }

    /// Keeps the pidfd of a removed process to wait for its end, if that matters: if the process still has groups, now or from earlier
    /// connections.
    pub(crate) fn wait_for_end(&mut self, id: ProcessId, process: Process, has_groups: bool, io: &Io) {
        if let Process { pidfd: Some(pidfd), key, .. } = process {
            self.departed.add(id, key, pidfd, has_groups, io);
        }
    }

    /// Waits for the end of a departed process no longer.
    pub(crate) fn forget_departed(&mut self, id: ProcessId, io: &Io) {
        self.departed.forget(id, io);
    }

    /// The process watched under this id has ended. Returns the ids under which it has departed.
    pub(crate) fn take_departed(&mut self, id: ProcessId, io: &Io) -> Vec<ProcessId> {
        self.departed.take(id, io)
    }
}

#[cfg(test)]
mod tests;
