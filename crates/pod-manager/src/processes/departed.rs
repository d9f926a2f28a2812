//! Processes that have closed their connections and whose end the manager still waits for, because they have groups under control.

use crate::io::Io;
use sluice_core::{ProcessId, ProcessKey};
use std::os::fd::OwnedFd;

/// Departures that are remembered. It remembers nothing of those beyond.
const MAX_DEPARTURES: usize = 1024;

/// The departed processes, one entry for each process of the kernel, however often it connects.
#[derive(Default)]
pub(crate) struct Departed(Vec<Entry>);

/// A process by pid and start time, if they are known.
type Key = Option<ProcessKey>;

struct Entry {
    key: Key,
    /// The id under which the poller reports its end.
    watched_as: ProcessId,
    /// `None` while the process is connected again: then the pidfd of its connection reports the end.
    pidfd: Option<OwnedFd>,
    /// The ids under which the process has departed with groups.
    ids: Vec<ProcessId>,
}

impl Departed {
    /// A process departs. Its pidfd is polled; it is kept if the process has groups, now or from earlier departures.
    pub(crate) fn add(&mut self, id: ProcessId, key: Key, pidfd: OwnedFd, has_groups: bool, io: &Io) {
        let has_room = self.0.iter().map(|entry| entry.ids.len()).sum::<usize>() < MAX_DEPARTURES;
        let id_to_keep = Some(id).filter(|_| has_groups && has_room);
        match self.find(key) {
            Some(entry) => {
                entry.ids.extend(id_to_keep);
                if entry.pidfd.is_none() && entry.watched_as == id {
                    entry.pidfd = Some(pidfd);
                    return;
                }
            }
            None if id_to_keep.is_some() => {
                self.0.push(Entry { key, watched_as: id, pidfd: Some(pidfd), ids: vec![id] });
                return;
            }
            None => {}
        }
        io.poller.remove(&pidfd);
    }

    /// A process is in the table, which may have departed before: the pidfd of its connection, which the poller has under this id, reports its
    /// end from here on.
    pub(crate) fn returned(&mut self, id: ProcessId, key: Key, io: &Io) {
        if let Some(entry) = self.find(key) {
            entry.watched_as = id;
            if let Some(pidfd) = entry.pidfd.take() {
                io.poller.remove(&pidfd);
            }
        }
    }

    /// The groups of a departure are gone.
    pub(crate) fn forget(&mut self, id: ProcessId, io: &Io) {
        for entry in &mut self.0 {
            entry.ids.retain(|kept| *kept != id);
        }
        for entry in self.0.extract_if(.., |entry| entry.ids.is_empty()) {
            entry.pidfd.inspect(|pidfd| io.poller.remove(pidfd));
        }
    }

    /// The process watched under this id has ended.
    pub(crate) fn take(&mut self, id: ProcessId, io: &Io) -> Vec<ProcessId> {
        let mut ids = Vec::new();
        for entry in self.0.extract_if(.., |entry| entry.watched_as == id) {
            entry.pidfd.inspect(|pidfd| io.poller.remove(pidfd));
            ids.extend(entry.ids);
        }
        ids
    }

    fn find(&mut self, key: Key) -> Option<&mut Entry> {
        key.and_then(|_| self.0.iter_mut().find(|entry| entry.key == key))
    }

    #[cfg(test)]
    fn descriptors(&self) -> usize {
        self.0.iter().filter(|entry| entry.pidfd.is_some()).count()
    }
}

#[cfg(test)]
mod tests;
