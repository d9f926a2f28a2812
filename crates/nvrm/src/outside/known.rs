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
    pub(super) crowd: String,
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
        let holder = (whom.key, number);
        let before = self.holders.get(&holder).copied();
        if let Some(id) = before
            && let Some(file) = self.files.get_mut(&id)
            && file.search.is_on(&copy.controls, questions).map_err(|why| why.to_string())?
        {
            return Ok(id);
        }
        // The number may mean another file by now: one that is known is known by its clients.
        let by_client = self.with_client_on(whom.crowd, copy, questions);
        let without = |id: &u64| self.files.get(id).is_some_and(|file| file.search.clients().is_empty());
        let known = by_client.or(before.filter(without)).or_else(|| self.shared(holder, whom.crowd, copy));
        let id = known.unwrap_or_else(|| {
            self.last += 1;
            let (search, crowd) = (Search::from(newest), whom.crowd.to_owned());
            let file =
                File { crowd, holders: BTreeSet::new(), search, walked: None, served: 0, completed: None };
            self.files.insert(self.last, file);
            self.last
        });
        if let Some(before) = self.holders.insert(holder, id).and_then(|before| self.files.get_mut(&before)) {
            before.holders.remove(&holder);
        }
        if let Some(file) = self.files.get_mut(&id) {
            file.holders.insert(holder);
        }
        Ok(id)
    }

    /// The open file of which the driver knows a client here.
    fn with_client_on(&self, crowd: &str, copy: &Copy, questions: &Questions) -> Option<u64> {
        let answers = |client: &u32| questions.take() && is_there(&copy.controls, *client).unwrap_or(false);
        let is_on = |file: &File| file.search.clients().first().is_some_and(answers);
        self.of(crowd).find(|(_, file)| is_on(file)).map(|(id, _)| *id)
    }

    /// The open file that somebody else has too, as the kernel says.
    fn shared(&self, holder: Holder, crowd: &str, copy: &Copy) -> Option<u64> {
        let same =
            |other: &&Holder| **other != holder && is_same_file(copy.descriptor.as_fd(), other.0.0, other.1);
        let is_it = |file: &File| file.holders.iter().take(2).find(same).is_some();
        self.of(crowd).find(|(_, file)| is_it(file)).map(|(id, _)| *id)
    }

    fn of(&self, crowd: &str) -> impl Iterator<Item = (&u64, &File)> {
        self.files.iter().filter(move |(_, file)| file.crowd == crowd).take(MOST_KNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{ControlBlock, handle_info};
    use crate::outside::{CLIENTS, Numbering};
    use crate::transport::Transport;
    use crate::{Controls, NvStatus};
    use std::fs::File as Opened;
    use std::io;

    /// A driver with one client on this file, or none.
    #[derive(Debug)]
    struct One(Option<u32>);

    impl Transport for One {
        fn escape(&self, _: u8, block: &mut [u8], params: &mut [u8]) -> io::Result<()> {
            let mut asked = ControlBlock::decode(block).unwrap();
            if Some(asked.client) == self.0 {
                params.copy_from_slice(&handle_info::encode(asked.client, handle_info::CLASS, 0x41));
            } else {
                asked.status = NvStatus::INVALID_CLIENT.0;
            }
            block.copy_from_slice(&asked.encode());
            Ok(())
        }
    }

    fn copy(client: Option<u32>) -> Copy {
        let descriptor = Opened::open("/dev/null").unwrap().into();
        Copy { descriptor, controls: Controls::new(Box::new(One(client))) }
    }

    #[test]
    fn a_file_that_takes_anothers_number_is_not_taken_for_it() {
        let us = Opened::open("/dev/null").unwrap();
        let whom = Process { key: (1, 1), process: us.as_fd(), crowd: "pod" };
        let (empty, full, other) = (copy(None), copy(Some(CLIENTS + 1)), copy(Some(CLIENTS + 2)));
        let newest = Numbering::at(Some(CLIENTS + 2)).newest();
        let (mut files, questions) = (Files::default(), Questions::new(1000));
        let mut identify = |number, copy| files.identify(&whom, number, copy, newest, &questions).unwrap();
        let (first, second) = (identify(3, &empty), identify(4, &full));
        assert_ne!(first, second);
        assert_eq!(identify(3, &empty), first, "it is as it was");
        // It had been searched through, and now the one with the client is there.
        let search = &mut files.get_mut(second).unwrap().search;
        search.go_back(&full.controls, 4, &questions, |_, _| false).unwrap();
        let mut identify = |number, copy| files.identify(&whom, number, copy, newest, &questions).unwrap();
        assert_eq!(identify(3, &full), second);
        // And a third one where the client was.
        assert!(![first, second].contains(&identify(4, &other)));
    }
}
