//! Two processes of one GPU, what they do, and what is really theirs.

use super::bugs::Bug;
use super::driver::{Driver, DriverGroup};
use super::manager::{Manager, Pending};
use crate::simulated_gpu::MS;
use sluice_comm::attach::ContextHandles;
use sluice_core::{ClientId, ConnectionId, ProcessKey};
use std::collections::BTreeSet;

pub(super) const PROCESSES: usize = 2;
/// The time at which the model begins, nanoseconds.
const START: u64 = 1_000 * MS;
/// The manager searches and checks at least this often, milliseconds.
const STEP_MS: u64 = 1_000;

/// What the hook of a process announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Claim {
    /// The groups that its process has made.
    Its,
    /// None.
    Nothing,
    /// One more, which does not exist.
    Missing,
    /// Those of the other process, too.
    Foreign,
}

/// The threads of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Threads {
    Run,
    /// The manager stops them. They run until it has done so.
    Stopping,
    Stopped,
}

/// A process of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) alive: bool,
    pub(super) threads: Threads,
    /// Its connection to the manager.
    pub(super) connection: Option<ConnectionId>,
    pub(super) claim: Claim,
    /// It enables its groups whenever they are disabled.
    pub(super) cheats: bool,
    /// Its hook enables its groups, because the connection was lost, as soon as its threads run.
    restores: bool,
    /// When it was last found to have groups that are not under control.
    pub(super) found_out: Option<u64>,
    /// Since when it is stopped, and which stop of its client this is.
    pub(super) stop: Option<(u64, u32)>,
    /// Its groups under control when its threads had stopped.
    pub(super) stopped_groups: BTreeSet<DriverGroup>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) now: u64,
    pub(super) clients: [ClientId; PROCESSES],
    /// The second process is a child of the first one and has inherited its file.
    pub(super) inherits: bool,
    pub(super) processes: [Process; PROCESSES],
    pub(super) driver: Driver,
    pub(super) manager: Manager,
    /// Stops of each client so far.
    pub(super) stops: [u32; PROCESSES],
    /// The properties that a state did not have so far.
    pub(super) violated: BTreeSet<&'static str>,
    pub(super) bug: Bug,
}

pub(super) fn key(index: usize) -> ProcessKey {
    (i32::try_from(index).unwrap() + 10, 7)
}

pub(super) fn index_of(key: ProcessKey) -> usize {
    usize::try_from(key.0 - 10).unwrap()
}

impl World {
    /// Two processes with one group each, which the manager does not know yet.
    pub(super) fn new(clients: [ClientId; PROCESSES], inherits: bool, bug: Bug) -> Self {
        let process = Process {
            alive: true,
            threads: Threads::Run,
            connection: None,
            claim: Claim::Its,
            cheats: false,
            restores: false,
            found_out: None,
            stop: None,
            stopped_groups: BTreeSet::new(),
        };
        let mut driver = Driver::default();
        driver.groups = (0..PROCESSES).map(|file| (DriverGroup { file, number: 1 }, true)).collect();
        Self {
            now: START,
            clients,
            inherits,
            processes: [process.clone(), process],
            driver,
            manager: Manager::new(clients, START),
            stops: [0; PROCESSES],
            violated: BTreeSet::new(),
            bug,
        }
    }

    /// Whether a living process has a file open.
    pub(super) fn has_file(&self, index: usize, file: usize) -> bool {
        self.processes[index].alive && (index == file || self.inherits && index == 1)
    }

    /// The file that a process sends, or that is found, as the descriptor with this index.
    pub(super) fn file(&self, index: usize, descriptor: u32) -> Option<usize> {
        match descriptor {
            0 => Some(index),
            _ => Some(0).filter(|file| self.has_file(index, *file) && index != *file),
        }
    }

    /// The groups of a file, under the descriptor with this index.
    fn groups_of(&self, file: usize, descriptor: u32) -> impl Iterator<Item = ContextHandles> {
        let its = self.driver.groups.keys().filter(move |group| group.file == file);
        its.map(move |group| group.handles(descriptor))
    }

    /// What an inspection of a process finds.
    pub(super) fn found(&self, index: usize) -> Vec<ContextHandles> {
        let descriptors = (0..2).filter_map(|descriptor| Some((self.file(index, descriptor)?, descriptor)));
        descriptors.flat_map(|(file, descriptor)| self.groups_of(file, descriptor)).collect()
    }

    /// What the hook of a process announces.
    pub(super) fn announced(&self, index: usize) -> Vec<ContextHandles> {
        let its = self.groups_of(index, 0);
        let other = 1 - index;
        match self.processes[index].claim {
            Claim::Its => its.collect(),
            Claim::Nothing => Vec::new(),
            Claim::Missing => its.chain([DriverGroup { file: index, number: 9 }.handles(0)]).collect(),
            Claim::Foreign => {
                let descriptor = u32::from(self.has_file(index, other));
                its.chain([DriverGroup { file: other, number: 1 }.handles(descriptor)]).collect()
            }
        }
    }

    /// Whether the code of a process runs.
    pub(super) fn runs(&self, index: usize) -> bool {
        self.processes[index].alive && self.processes[index].threads != Threads::Stopped
    }

    pub(super) fn changes_claim(&mut self, index: usize, claim: Claim) {
        self.processes[index].claim = claim;
        self.announces(index);
    }

    /// A process makes its second group, or destroys its first one. Its hook announces that.
    pub(super) fn changes_groups(&mut self, index: usize, makes: bool) {
        let group = |number| DriverGroup { file: index, number };
        if makes {
            self.driver.groups.insert(group(2), true);
        } else {
            self.driver.groups.remove(&group(1));
        }
        self.announces(index);
    }

    /// The sockets of a process are closed. Another process of its pod can do that while it is stopped.
    pub(super) fn detaches(&mut self, index: usize) {
        let Some(connection) = self.processes[index].connection.take() else { return };
        self.processes[index].restores = true;
        self.restore();
        if self.bug != Bug::LosesChannelClosed {
            self.drop_connection(connection);
        }
    }

    pub(super) fn ends(&mut self, index: usize) {
        let process = &mut self.processes[index];
        (process.alive, process.connection) = (false, None);
        self.manager.pending.retain(|pending| *pending != Pending::ThreadsStop(index));
        self.free();
    }

    /// The driver frees the groups of files that are closed.
    pub(super) fn free(&mut self) {
        let held = [0, 1].map(|file| (0..PROCESSES).any(|index| self.has_file(index, file)));
        self.driver.free(|file| held[file]);
    }

    /// The hooks that have lost their connection enable their groups.
    fn restore(&mut self) {
        for index in 0..PROCESSES {
            if self.runs(index) && std::mem::take(&mut self.processes[index].restores) {
                self.driver.enable_all(index);
            }
        }
    }

    /// Time passes, with a search and a check in each step. Answers that the manager waits for come first.
    pub(super) fn pass(&mut self, mut ms: u64) {
        while ms > 0 {
            let step = ms.min(STEP_MS);
            ms -= step;
            self.step(step);
        }
    }

    /// Time passes until the manager does something again.
    pub(super) fn step(&mut self, ms: u64) {
        self.answer();
        self.now += ms * MS;
        self.restore();
        for index in 0..PROCESSES {
            if self.processes[index].cheats && self.runs(index) {
                self.driver.enable_all(index);
            }
        }
        self.check_groups();
        self.begin_search();
        self.manage();
        self.answer();
        self.observe();
    }
}
