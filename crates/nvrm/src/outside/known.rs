//! Open files that are known, whoever has them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, RawFd};

use sluice_sys::pidfd::is_same_file;

use super::files::Copy;
use super::numbering::Place;
use super::search::{Questions, Search, is_there};
use super::searcher::{Process, ProcessKey};
use super::way::Group;

/// Open files of a crowd that another may be the same as.
const MOST_KNOWN: usize = 256;

/// A process, and the number of its descriptor.
type Holder = (ProcessKey, RawFd);

/// An open file, whoever has it.
#[derive(Debug)]
pub(super) struct File {
    crowd: String,
    pub(super) holders: BTreeSet<Holder>,
    pub(super) search: Search,
    /// In which round it was walked through, its groups on this GPU, and whether there were others.
    pub(super) walked: Option<(u64, Vec<Group>, bool)>,
    /// The round in which clients were searched for on it last, and that in which all had been.
    pub(super) served: u64,
    pub(super) completed: Option<u64>,
}

/// All of them, by numbers of ours.
#[derive(Debug, Default)]
pub(super) struct Files {
    files: BTreeMap<u64, File>,
    holders: BTreeMap<Holder, u64>,
    last: u64,
}

impl Files {
    /// One of them.
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut File> {
        self.files.get_mut(&id)
    }

    /// Each of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut File)> {
        self.files.iter_mut().map(|(id, file)| (*id, file))
    }

    /// Forgets what those had of whom this is true.
    pub(super) fn let_go(&mut self, have_it_no_more: impl Fn(&Holder) -> bool) {
        self.holders.retain(|holder, _| !have_it_no_more(holder));
        for file in self.files.values_mut() {
            file.holders.retain(|holder| !have_it_no_more(holder));
        }
        self.files.retain(|_, file| !file.holders.is_empty());
    }

    /// Which open file this is: one that is known, of this process or of another, or a new one.
    pub(super) fn identify(
        &mut self,
        whom: &Process<'_>,
        number: RawFd,
        copy: &Copy,
        newest: Place,
        questions: &Questions,
    ) -> Result<u64, String> {
        if let Some(id) = self.holders.get(&(whom.key, number)).copied()
            && let Some(file) = self.files.get_mut(&id)
            && (file.search.clients().is_empty()
                || file.search.is_on(&copy.controls, questions).map_err(|why| why.to_string())?)
        {
            return Ok(id);
        }
        let id = match self.shared(whom.crowd, copy, questions) {
            Some(id) => id,
            None => {
                self.last += 1;
                let search = Search::from(newest);
                let crowd = whom.crowd.to_owned();
                let holders = BTreeSet::new();
                let file = File { crowd, holders, search, walked: None, served: 0, completed: None };
                self.files.insert(self.last, file);
                self.last
            }
        };
        let holder = (whom.key, number);
        if let Some(before) = self.holders.insert(holder, id).and_then(|before| self.files.get_mut(&before)) {
            before.holders.remove(&holder);
        }
        if let Some(file) = self.files.get_mut(&id) {
            file.holders.insert(holder);
        }
        Ok(id)
    }

    /// The open file that this is, too: the kernel says so, or the driver knows a client of it here.
    fn shared(&self, crowd: &str, copy: &Copy, questions: &Questions) -> Option<u64> {
        let known = || self.files.iter().filter(|(_, file)| file.crowd == crowd).take(MOST_KNOWN);
        let same = known().find(|(_, file)| {
            let holder = file.holders.first();
            holder.is_some_and(|((pid, _), number)| is_same_file(copy.descriptor.as_fd(), *pid, *number))
        });
        let same = same.or_else(|| {
            known().find(|(_, file)| {
                let client = file.search.clients().first();
                let answers = |client: &u32| is_there(&copy.controls, *client).unwrap_or(false);
                client.is_some_and(|client| questions.take() && answers(client))
            })
        });
        same.map(|(id, _)| *id)
    }
}
