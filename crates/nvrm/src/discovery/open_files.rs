//! The known open files of the control device, and which processes have each of them open.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, RawFd};

use sluice_comm::attach::ContextHandles;
use sluice_sys::pidfd::is_same_file;

use super::client_numbering::ClientPosition;
use super::client_search::{ClientSearch, QueryBudget, client_exists};
use super::descriptors::DescriptorCopy;
use super::group_discovery::{ProcessKey, ScannedProcess};
use super::limits::MAX_COMPARED_FILES;

/// A process, and the number of its descriptor.
type Holder = (ProcessKey, RawFd);

/// An open file of the control device.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) pod: String,
    pub(super) holders: BTreeSet<Holder>,
    pub(super) search: ClientSearch,
    /// The last walk through the objects of its clients.
    pub(super) walk: Option<Walked>,
    /// The scan in which client numbers were last queried over it; 0: none were.
    pub(super) searched_in: u64,
    /// The scan in which the search was complete.
    pub(super) completed_in: Option<u64>,
}

/// What a walk found.
#[derive(Debug, Clone)]
pub(super) struct Walked {
    pub(super) scan: u64,
    /// Groups on this GPU.
    pub(super) groups: Vec<ContextHandles>,
    /// Whether there are groups on other GPUs.
    pub(super) has_other_gpus: bool,
}

/// All known open files, by a number of our own.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    files: BTreeMap<u64, OpenFile>,
    ids: BTreeMap<Holder, u64>,
    last_id: u64,
}

impl OpenFiles {
    /// The open file with this number.
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut OpenFile> {
        self.files.get_mut(&id)
    }

    /// Every open file with its number.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut OpenFile)> {
        self.files.iter_mut().map(|(id, file)| (*id, file))
    }

    /// Forgets the holders for which `is_gone` is true, and every file without a holder.
    pub(super) fn forget_holders(&mut self, is_gone: impl Fn(&Holder) -> bool) {
        self.ids.retain(|holder, _| !is_gone(holder));
        for file in self.files.values_mut() {
            file.holders.retain(|holder| !is_gone(holder));
        }
        self.files.retain(|_, file| !file.holders.is_empty());
    }

    /// The number of the open file behind descriptor `number` of a process: a known file of this or another process of the pod, or a
    /// new one.
    pub(super) fn identify(
        &mut self,
        process: &ScannedProcess<'_>,
        number: RawFd,
        copy: &DescriptorCopy,
        newest: ClientPosition,
        queries: &QueryBudget,
    ) -> Result<u64, String> {
        let holder = (process.key, number);
        let before = self.ids.get(&holder).copied();
        if let Some(id) = before
            && let Some(file) = self.files.get_mut(&id)
            && file.search.drop_freed(&copy.controls, queries).map_err(|why| why.to_string())?
        {
            return Ok(id);
        }
        // The process may have opened another file under this number. Clients identify a known file.
        let by_client = self.find_by_client(process.pod, copy, queries);
        let has_no_client =
            |id: &u64| self.files.get(id).is_some_and(|file| file.search.clients().is_empty());
        let known = by_client
            .or(before.filter(has_no_client))
            .or_else(|| self.find_by_comparison(holder, process.pod, copy));
        let id = known.unwrap_or_else(|| self.add(process.pod, newest));
        if let Some(before) = self.ids.insert(holder, id).and_then(|before| self.files.get_mut(&before)) {
            before.holders.remove(&holder);
        }
        if let Some(file) = self.files.get_mut(&id) {
            file.holders.insert(holder);
        }
        Ok(id)
    }

    fn add(&mut self, pod: &str, newest: ClientPosition) -> u64 {
        self.last_id += 1;
        let file = OpenFile {
            pod: pod.to_owned(),
            holders: BTreeSet::new(),
            search: ClientSearch::from(newest),
            walk: None,
            searched_in: 0,
            completed_in: None,
        };
        self.files.insert(self.last_id, file);
        self.last_id
    }

    /// The known file of which the first client exists on this descriptor.
    fn find_by_client(&self, pod: &str, copy: &DescriptorCopy, queries: &QueryBudget) -> Option<u64> {
        let exists =
            |client: &u32| queries.try_take() && client_exists(&copy.controls, *client).unwrap_or(false);
        let is_same = |file: &OpenFile| file.search.clients().first().is_some_and(exists);
        self.of_pod(pod).find(|(_, file)| is_same(file)).map(|(id, _)| *id)
    }

    /// The known file that kcmp reports to be the same as this descriptor's.
    fn find_by_comparison(&self, holder: Holder, pod: &str, copy: &DescriptorCopy) -> Option<u64> {
        let same =
            |other: &&Holder| **other != holder && is_same_file(copy.descriptor.as_fd(), other.0.0, other.1);
        let is_same = |file: &OpenFile| file.holders.iter().take(2).find(same).is_some();
        self.of_pod(pod).find(|(_, file)| is_same(file)).map(|(id, _)| *id)
    }

    fn of_pod(&self, pod: &str) -> impl Iterator<Item = (&u64, &OpenFile)> {
        self.files.iter().filter(move |(_, file)| file.pod == pod).take(MAX_COMPARED_FILES)
    }
}

#[cfg(test)]
mod tests;
