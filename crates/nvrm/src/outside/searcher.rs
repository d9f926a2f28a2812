//! What is known of the open files of processes, from one look at them to the next.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;

use super::files::{self, Copy};
use super::known::Files;
use super::newest::Newest;
use super::numbering::{NUMBERS, Numbering};
use super::search::Questions;
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
/// Numbers that were given since the last look are asked for up to so many at a look: how many there are is up to others.
const SINCE: u32 = 1 << 16;
const AFTER_FOUND: u64 = 4_096;
/// Numbers that are asked for at most where everything is looked for at once.
const AT_ONCE: u32 = 1 << 22;
/// Numbers that a simulator's client may have: each question takes it twenty times as long.
const OF_SIMULATOR: u64 = 513;

/// Looks for the groups of processes, and remembers which numbers were asked for on which open file.
#[derive(Debug)]
pub struct Searcher {
    pub(super) simulated: bool,
    at_once: bool,
    newest: Newest,
    pub(super) numbering: Numbering,
    pub(super) round: u64,
    /// In which round the numbering was looked at last.
    read: u64,
    pub(super) files: Files,
}

impl Searcher {
    /// Nothing is known. `simulated`: sockets of a simulator are ways to the driver too.
    #[must_use]
    pub fn new(simulated: bool) -> Self {
        let (newest, numbering, files) = (Newest::default(), Numbering::default(), Files::default());
        Self { simulated, at_once: false, newest, numbering, round: 1, read: 0, files }
    }

    /// For one look in which everything is to be found. `newest` is a client that was made just now.
    #[must_use]
    pub fn once(simulated: bool, newest: Option<u32>) -> Self {
        Self { at_once: true, read: 1, numbering: Numbering::at(newest), ..Self::new(simulated) }
    }

    /// A new round of looks: what was found in the last one may have changed. All but these processes are forgotten.
    pub fn begin(&mut self, present: &HashSet<ProcessKey>) {
        self.round += 1;
        self.files.let_go(|(key, _)| !present.contains(key));
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
        if !numbers.is_empty() {
            self.read_numbering();
        }
        let (mut ways, mut seen, mut copies, mut counted) = (Vec::new(), HashSet::new(), 0, 0);
        let mut complete = true;
        for &number in &numbers {
            let Some(copy) = files::copy(whom.process, number, self.simulated).map_err(failed)? else {
                continue;
            };
            copies += 1;
            let id = self.files.identify(whom, number, &copy, self.numbering.newest(), &limits.questions);
            let id = id.map_err(|why| Unreachable::Groups { pid, why })?;
            if copies <= MOST_COPIES && !seen.insert(id) {
                continue;
            }
            let walked = self.walked(id, &copy, gpu, limits);
            let (groups, elsewhere) = walked.map_err(|why| Unreachable::Groups { pid, why })?;
            complete &= self.files.get_mut(id).is_some_and(|file| file.completed.is_some());
            counted += usize::from(!elsewhere || !groups.is_empty());
            if counted > MOST_FILES || copies > MOST_COPIES {
                return Err(Unreachable::TooMany(pid));
            }
            if elsewhere || !groups.is_empty() {
                ways.push(Way { descriptor: copy.descriptor, controls: copy.controls, groups });
            }
        }
        self.files.let_go(|(key, number)| *key == whom.key && !numbers.contains(number));
        match (copies, ways.is_empty(), complete) {
            (0, ..) => Err(Unreachable::NoDriver(pid)),
            (_, true, true) => Err(Unreachable::NoGroups(pid)),
            (_, true, false) => Err(Unreachable::NotYet(pid)),
            _ => Ok(ways),
        }
    }

    /// The groups on an open file that are on this GPU, and whether there are others. Once per round.
    fn walked(
        &mut self,
        id: u64,
        copy: &Copy,
        gpu: Option<&str>,
        limits: &Limits,
    ) -> Result<(Vec<Group>, bool), String> {
        let (round, newest, circle, at_once) =
            (self.round, self.numbering.newest(), self.circle(), self.at_once);
        let Some(file) = self.files.get_mut(id) else { return Ok((Vec::new(), false)) };
        if let Some((_, groups, elsewhere)) = file.walked.as_ref().filter(|(walked, ..)| *walked == round) {
            return Ok((groups.clone(), *elsewhere));
        }
        let enough = |clients: &[u32], since| !clients.is_empty() && since >= AFTER_FOUND;
        let search = &mut file.search;
        let since = Questions::new(SINCE);
        let searched = search.catch_up(&copy.controls, newest, &since).and_then(|()| {
            if at_once {
                search.go_back(&copy.controls, circle, &Questions::new(AT_ONCE), enough)
            } else if search.clients().is_empty() && file.served == 0 {
                let given = FIRST.min(limits.questions.left());
                let first = Questions::new(given);
                let searched = search.go_back(&copy.controls, circle, &first, enough);
                limits.questions.spend(given - first.left());
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

    pub(super) fn circle(&self) -> u64 {
        if self.simulated { OF_SIMULATOR } else { NUMBERS }
    }
}
