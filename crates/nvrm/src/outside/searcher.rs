//! What is known of the open files of processes, from one look at them to the next.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use sluice_sys::pidfd::is_same_file;

use super::files::{self, Copy};
use super::newest::Newest;
use super::numbering::{NUMBERS, Numbering};
use super::search::{Questions, Search, is_there};
use super::walk::{Limits, walk};
use super::way::{self, Group, Way};
use super::{MOST_COPIES, MOST_FILES, Unreachable};

/// A process's number and when it started: never given twice.
pub type ProcessKey = (i32, u64);

/// A process that is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    /// Which one it is.
    pub key: ProcessKey,
    /// Its pidfd: nothing is copied from another process that was given the number since.
    pub process: BorrowedFd<'a>,
    /// Only processes of one crowd are thought to share open files.
    pub crowd: &'a str,
}

/// Numbers of clients that are asked for at the first look at an open file, and whenever clients are looked for at once and one has
/// been found: a process makes its clients within a short time.
const FIRST: u32 = 1 << 15;
const AFTER_FOUND: u64 = 4_096;
/// Numbers that are asked for at most where everything is looked for at once.
const AT_ONCE: u32 = 1 << 22;
/// Numbers that a simulator's client may have: each question takes it twenty times as long.
const OF_SIMULATOR: u64 = 513;
/// The least that is asked for on one file per round.
const LEAST: u32 = 1 << 12;
/// Rounds after which a file on which there is no client is searched once more from the start.
const REST: u64 = 600;
/// Open files of a crowd that another may be the same as.
const MOST_KNOWN: usize = 256;

/// Looks for the groups of processes, and remembers which numbers were asked for on which open file.
#[derive(Debug)]
pub struct Searcher {
    simulated: bool,
    at_once: bool,
    newest: Newest,
    numbering: Numbering,
    round: u64,
    /// In which round the numbering was looked at last.
    read: u64,
    files: BTreeMap<u64, File>,
    holders: BTreeMap<(ProcessKey, RawFd), u64>,
    last: u64,
}

/// An open file, whoever has it.
#[derive(Debug)]
struct File {
    crowd: String,
    holders: BTreeSet<(ProcessKey, RawFd)>,
    search: Search,
    /// In which round it was walked through, its groups on this GPU, and whether there were others.
    walked: Option<(u64, Vec<Group>, bool)>,
    /// The round in which clients were searched for on it last, and that in which all had been.
    served: u64,
    completed: Option<u64>,
}

impl Searcher {
    /// Nothing is known. `simulated`: sockets of a simulator are ways to the driver too.
    #[must_use]
    pub fn new(simulated: bool) -> Self {
        let (files, holders) = (BTreeMap::new(), BTreeMap::new());
        let (newest, numbering) = (Newest::default(), Numbering::default());
        Self { simulated, at_once: false, newest, numbering, round: 1, read: 0, files, holders, last: 0 }
    }

    /// For one look in which everything is to be found. `newest` is a client that was made just now.
    #[must_use]
    pub fn once(simulated: bool, newest: Option<u32>) -> Self {
        Self { at_once: true, read: 1, numbering: Numbering::at(newest), ..Self::new(simulated) }
    }

    /// A new round of looks: what was found in the last one may have changed. All but these processes are forgotten.
    pub fn begin(&mut self, present: &HashSet<ProcessKey>) {
        self.round += 1;
        self.let_go(|(key, _)| !present.contains(key));
    }

    fn let_go(&mut self, have_it_no_more: impl Fn(&(ProcessKey, RawFd)) -> bool) {
        self.holders.retain(|holder, _| !have_it_no_more(holder));
        for file in self.files.values_mut() {
            file.holders.retain(|holder| !have_it_no_more(holder));
        }
        self.files.retain(|_, file| !file.holders.is_empty());
    }

    /// The open files of a process that lead to compute groups, of this GPU if one is named by its uuid. Files that lead to those of other
    /// GPUs only are ways without groups.
    ///
    /// # Errors
    /// [`Unreachable`]; also if any group could not be stopped: a process of which a part goes on does not stand.
    pub fn look(
        &mut self,
        whom: &Process<'_>,
        gpu: Option<&str>,
        limits: &Limits,
    ) -> Result<Vec<Way>, Unreachable> {
        let pid = whom.key.0;
        let failed = |why| Unreachable::Process { pid, why };
        let numbers = files::descriptors(pid, self.simulated).map_err(failed)?;
        self.let_go(|(key, number)| *key == whom.key && !numbers.contains(number));
        let (mut ways, mut seen, mut copies, mut counted) = (Vec::new(), HashSet::new(), 0, 0);
        let mut complete = true;
        for number in numbers {
            let Some(copy) = files::copy(whom.process, number, self.simulated).map_err(failed)? else {
                continue;
            };
            copies += 1;
            let id = self.identify(whom, number, &copy, limits);
            let id = id.map_err(|why| Unreachable::Groups { pid, why })?;
            if copies <= MOST_COPIES && !seen.insert(id) {
                continue;
            }
            let walked = self.walked(id, &copy, gpu, limits);
            let (groups, elsewhere) = walked.map_err(|why| Unreachable::Groups { pid, why })?;
            complete &= self.files.get(&id).is_some_and(|file| file.completed.is_some());
            counted += usize::from(!elsewhere || !groups.is_empty());
            if counted > MOST_FILES || copies > MOST_COPIES {
                return Err(Unreachable::TooMany(pid));
            }
            if elsewhere || !groups.is_empty() {
                ways.push(Way { descriptor: copy.descriptor, controls: copy.controls, groups });
            }
        }
        match (copies, ways.is_empty(), complete) {
            (0, ..) => Err(Unreachable::NoDriver(pid)),
            (_, true, true) => Err(Unreachable::NoGroups(pid)),
            (_, true, false) => Err(Unreachable::NotYet(pid)),
            _ => Ok(ways),
        }
    }

    /// Searches on for clients of the open files of these processes, those that have waited longest first, and says on whose there is a
    /// client that was not known.
    pub fn search(&mut self, processes: &[Process<'_>], questions: &Questions) -> HashSet<ProcessKey> {
        let mut waiting: Vec<(u64, u64)> = Vec::new();
        for (id, file) in &mut self.files {
            if file.search.clients().is_empty() && file.completed.is_some_and(|at| at + REST < self.round) {
                file.completed = None;
                file.search.begin_again(self.numbering.newest());
            }
            if file.completed.is_none() {
                waiting.push((file.served, *id));
            }
        }
        waiting.sort_unstable();
        let mut with_new = HashSet::new();
        for (at, (_, id)) in waiting.iter().enumerate() {
            let left = u32::try_from(waiting.len() - at).unwrap_or(u32::MAX);
            let share = (questions.left() / left).max(LEAST).min(questions.left());
            if share == 0 {
                break;
            }
            let share = Questions::new(share);
            if self.search_on(*id, processes, &share, questions) {
                let holders = self.files.get(id).into_iter().flat_map(|file| &file.holders);
                with_new.extend(holders.map(|(key, _)| *key));
            }
        }
        with_new
    }

    /// Whether there is a client that was not known.
    fn search_on(
        &mut self,
        id: u64,
        processes: &[Process<'_>],
        share: &Questions,
        questions: &Questions,
    ) -> bool {
        let circle = self.circle();
        let Some(file) = self.files.get_mut(&id) else { return false };
        let copy = file.holders.iter().find_map(|(key, number)| {
            let whom = processes.iter().find(|process| process.key == *key)?;
            files::copy(whom.process, *number, self.simulated).ok().flatten()
        });
        let Some(copy) = copy else { return false };
        file.served = self.round;
        let (known, given) = (file.search.clients().len(), share.left());
        // Whatever the driver says, it is asked again.
        let _ = file.search.go_back(&copy.controls, circle, share, |_, _| false);
        questions.spend(given - share.left());
        file.completed = file.search.is_complete(circle).then_some(self.round);
        let has_new = file.search.clients().len() > known;
        if has_new {
            file.walked = None;
        }
        has_new
    }

    /// Which open file this is: one that is known, of this process or of another, or a new one.
    fn identify(
        &mut self,
        whom: &Process<'_>,
        number: RawFd,
        copy: &Copy,
        limits: &Limits,
    ) -> Result<u64, String> {
        let questions = &limits.questions;
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
                self.read_numbering();
                let search = Search::from(self.numbering.newest());
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

    /// The groups on an open file that are on this GPU, and whether there are others. Once per round.
    fn walked(
        &mut self,
        id: u64,
        copy: &Copy,
        gpu: Option<&str>,
        limits: &Limits,
    ) -> Result<(Vec<Group>, bool), String> {
        self.read_numbering();
        let (round, newest, circle, at_once) =
            (self.round, self.numbering.newest(), self.circle(), self.at_once);
        let Some(file) = self.files.get_mut(&id) else { return Ok((Vec::new(), false)) };
        if let Some((_, groups, elsewhere)) = file.walked.as_ref().filter(|(walked, ..)| *walked == round) {
            return Ok((groups.clone(), *elsewhere));
        }
        let enough = |clients: &[u32], since| !clients.is_empty() && since >= AFTER_FOUND;
        let search = &mut file.search;
        let searched = search.catch_up(&copy.controls, newest, &limits.questions).and_then(|()| {
            if at_once {
                search.go_back(&copy.controls, circle, &Questions::new(AT_ONCE), enough)
            } else if search.clients().is_empty() && file.served == 0 {
                let first = Questions::new(FIRST);
                let searched = search.go_back(&copy.controls, circle, &first, enough);
                limits.questions.spend(FIRST - first.left());
                searched
            } else {
                Ok(())
            }
        });
        searched.map_err(|why| why.to_string())?;
        file.served = file.served.max(1);
        if search.is_complete(circle) || at_once {
            file.completed.get_or_insert(round);
        }
        let tree = walk(&copy.controls, search.clients(), limits).map_err(|why| why.to_string())?;
        let (groups, elsewhere) = way::groups(&copy.controls, tree, gpu)?;
        file.walked = Some((round, groups.clone(), elsewhere));
        Ok((groups, elsewhere))
    }

    /// Has a number taken at most once a round.
    fn read_numbering(&mut self) {
        if self.read != self.round && !self.simulated {
            // Without an answer all that is missing is where to begin.
            let _ = self.newest.client().map(|client| self.numbering.made(client));
        }
        self.read = self.round;
    }

    fn circle(&self) -> u64 {
        if self.simulated { OF_SIMULATOR } else { NUMBERS }
    }
}
