//! What is known of the open files of processes, from one scan to the next.

use std::collections::HashSet;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use super::client_numbering::{CLIENT_NUMBERS, ClientNumbering, NewestClient};
use super::descriptors::{self, DescriptorCopy};
use super::discovered_process::{DiscoveredDescriptor, groups_on};
use super::limits::{FIRST_SEARCH, MAX_DESCRIPTORS, MAX_FILES, NEWER_NUMBERS, SINGLE_SCAN};
use super::objects::{WalkLimits, walk_objects};
use super::open_files::{OpenFiles, Walked};
use super::{DiscoveryError, QueryBudget};

/// A process id and the start time in clock ticks since boot. The pair is never used again.
pub type ProcessKey = (i32, u64);

/// A process of which the open files are inspected.
#[derive(Debug, Clone, Copy)]
pub struct ScannedProcess<'a> {
    /// Its id and start time.
    pub key: ProcessKey,
    /// Its pidfd: descriptors are copied from this process only, even if its id is reused.
    pub pidfd: BorrowedFd<'a>,
    /// Its pod. Only processes of one pod are assumed to share open files.
    pub pod: &'a str,
}

/// Numbers that a simulator's client may have; one query takes a simulator 20 times as long as a real driver.
const SIMULATOR_NUMBERS: u64 = 513;

/// Finds the channel groups of processes, and remembers which client numbers were queried on which open file.
#[derive(Debug)]
pub struct GroupDiscovery {
    pub(super) simulated: bool,
    /// The search on a file ends within its first inspection.
    is_single_scan: bool,
    newest: NewestClient,
    pub(super) numbering: ClientNumbering,
    /// Number of the current scan.
    pub(super) scan: u64,
    /// The scan in which the numbering was last read.
    numbering_read_in: u64,
    pub(super) files: OpenFiles,
}

impl GroupDiscovery {
    /// A discovery that knows no file. `simulated`: sockets of a simulator lead to the driver too.
    pub fn new(simulated: bool) -> Self {
        Self {
            simulated,
            is_single_scan: false,
            newest: NewestClient::default(),
            numbering: ClientNumbering::default(),
            scan: 1,
            numbering_read_in: 0,
            files: OpenFiles::default(),
        }
    }

    /// A discovery for one scan that must find everything. `newest` is the handle of a client made just now.
    pub fn single_scan(simulated: bool, newest: Option<u32>) -> Self {
        let numbering = ClientNumbering::from_newest(newest);
        Self { is_single_scan: true, numbering_read_in: 1, numbering, ..Self::new(simulated) }
    }

    /// Begins a scan: groups found by the last one may have changed. Forgets all processes but these.
    pub fn begin_scan(&mut self, present: &HashSet<ProcessKey>) {
        self.scan += 1;
        self.files.forget_holders(|(key, _)| !present.contains(key));
    }

    /// Begins a scan of some processes only: what was found of the others stays.
    pub fn continue_scan(&mut self) {
        self.scan += 1;
    }

    /// Inspects a process: returns its open files that lead to compute groups, of one GPU if `gpu` names it by UUID. A file that leads
    /// only to other GPUs is returned without groups. `numbers` are its descriptors that may lead to the driver.
    /// Errors: [`DiscoveryError`]; also if one of the groups could not be disabled, because a process of which a part continues is not
    /// stopped.
    pub fn inspect(
        &mut self,
        process: &ScannedProcess<'_>,
        numbers: &[RawFd],
        gpu: Option<&str>,
        limits: &WalkLimits,
    ) -> Result<Vec<DiscoveredDescriptor>, DiscoveryError> {
        let pid = process.key.0;
        let no_access = |why| DiscoveryError::NoAccess { pid, why };
        let unusable = |why| DiscoveryError::Groups { pid, why };
        if !numbers.is_empty() && !self.simulated {
            self.read_numbering(|newest| newest.read());
        }
        let (mut found, mut inspected, mut copies, mut files) = (Vec::new(), HashSet::new(), 0, 0);
        let mut is_complete = true;
        for &number in numbers {
            let copy =
                descriptors::copy_descriptor(process.pidfd, number, self.simulated).map_err(no_access)?;
            let Some(copy) = copy else { continue };
            copies += 1;
            if self.simulated {
                self.read_numbering(|_| copy.controls.simulators_newest_client());
            }
            let newest = self.numbering.newest();
            let id =
                self.files.identify(process, number, &copy, newest, &limits.queries).map_err(unusable)?;
            if copies <= MAX_DESCRIPTORS && !inspected.insert(id) {
                continue;
            }
            let Walked { groups, has_other_gpus, .. } =
                self.inspect_file(id, &copy, gpu, limits).map_err(unusable)?;
            is_complete &= self.files.get_mut(id).is_some_and(|file| file.completed_in.is_some());
            files += usize::from(!has_other_gpus || !groups.is_empty());
            if files > MAX_FILES || copies > MAX_DESCRIPTORS {
                return Err(DiscoveryError::TooManyFiles(pid));
            }
            if has_other_gpus || !groups.is_empty() {
                let DescriptorCopy { descriptor, controls } = copy;
                found.push(DiscoveredDescriptor { descriptor, controls, groups });
            }
        }
        self.files.forget_holders(|(key, number)| *key == process.key && !numbers.contains(number));
        match (copies, found.is_empty(), is_complete) {
            (0, ..) => Err(DiscoveryError::NoDriver(pid)),
            (_, true, true) => Err(DiscoveryError::NoGroups(pid)),
            (_, true, false) => Err(DiscoveryError::SearchIncomplete(pid)),
            _ => Ok(found),
        }
    }

    /// Searches for clients on an open file and walks through their objects, at most once a scan.
    fn inspect_file(
        &mut self,
        id: u64,
        copy: &DescriptorCopy,
        gpu: Option<&str>,
        limits: &WalkLimits,
    ) -> Result<Walked, String> {
        let (scan, numbering, range, is_single_scan) =
            (self.scan, self.numbering, self.number_range(), self.is_single_scan);
        let Some(file) = self.files.get_mut(id) else {
            return Ok(Walked { scan, groups: Vec::new(), has_other_gpus: false });
        };
        if let Some(walk) = file.walk.as_ref().filter(|walk| walk.scan == scan) {
            return Ok(walk.clone());
        }
        let is_enough = |clients: &[u32], since| !clients.is_empty() && since >= limits.numbers_after_client;
        let (search, queries) = (&mut file.search, &limits.queries);
        let mut searched =
            queries.lend(NEWER_NUMBERS, |queries| search.search_newer(&copy.controls, &numbering, queries));
        if searched.is_ok() && is_single_scan {
            let queries = QueryBudget::new(SINGLE_SCAN);
            searched = search.search_older(&copy.controls, range, &queries, is_enough);
        } else if searched.is_ok() && search.clients().is_empty() && file.searched_in == 0 {
            searched = queries
                .lend(FIRST_SEARCH, |queries| search.search_older(&copy.controls, range, queries, is_enough));
        }
        searched.map_err(|why| why.to_string())?;
        file.searched_in = file.searched_in.max(1);
        if search.is_complete(range) || is_single_scan {
            file.completed_in.get_or_insert(scan);
        }
        let tree = walk_objects(&copy.controls, search.clients(), limits).map_err(|why| why.to_string())?;
        let (groups, has_other_gpus) = groups_on(&copy.controls, tree, gpu)?;
        let walk = Walked { scan, groups, has_other_gpus };
        file.walk = Some(walk.clone());
        Ok(walk)
    }

    /// Reads the newest client number, at most once a scan.
    fn read_numbering(&mut self, read: impl FnOnce(&mut NewestClient) -> io::Result<u32>) {
        if self.numbering_read_in != self.scan {
            // Without an answer the search begins at an older number.
            let _ = read(&mut self.newest).map(|client| self.numbering.observe(client));
        }
        self.numbering_read_in = self.scan;
    }

    pub(super) fn number_range(&self) -> u64 {
        if self.simulated { self.numbering.count().min(SIMULATOR_NUMBERS) } else { CLIENT_NUMBERS }
    }
}
