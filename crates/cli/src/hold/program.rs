//! A program whose channel groups are held, also those that it makes meanwhile.

use std::time::{Duration, Instant};

use anyhow::Context;
use sluice_comm::attach::ContextHandles;
use sluice_nvrm::ControlError;
use sluice_nvrm::outside::Tenant;

use super::worker::{find, newest};

/// Between two searches lies at least this, and at least so many times as long as the last one took: each asks the driver about all
/// numbers from the newest client down to the program's own, and meanwhile nobody's turn ends.
const SEARCH_EVERY: Duration = Duration::from_millis(500);
const REST: u32 = 50;

/// A program and all that was found of it.
pub(super) struct Program {
    pid: i32,
    simulated: bool,
    /// Whether its groups stand.
    stands: bool,
    /// What the last search found that found something new.
    found: Tenant,
    /// What was found before and is not in `found`: the program has freed it, or it was overlooked. A group may be in several.
    older: Vec<Tenant>,
    next: Instant,
}

impl Program {
    /// Finds it. It runs.
    pub(super) fn find(pid: i32, simulated: bool) -> anyhow::Result<Self> {
        let found = find(pid, simulated, newest(simulated))?;
        let next = Instant::now() + SEARCH_EVERY;
        Ok(Self { pid, simulated, stands: false, found, older: Vec::new(), next })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn has_ended(&self) -> bool {
        self.found.has_ended()
    }

    /// Its groups, each once.
    pub(super) fn groups(&self) -> Vec<&ContextHandles> {
        let mut groups: Vec<&ContextHandles> = Vec::new();
        for group in self.all().rev().flat_map(Tenant::groups) {
            if !groups
                .iter()
                .any(|known| (known.client, known.channel_group) == (group.client, group.channel_group))
            {
                groups.push(group);
            }
        }
        groups
    }

    /// What was found, the latest last.
    fn all(&self) -> impl DoubleEndedIterator<Item = &Tenant> {
        self.older.iter().chain([&self.found])
    }

    /// Takes all its groups off the GPU. If one cannot be stopped, all run; but of what only an earlier search found, what the driver
    /// refuses was freed, and is forgotten.
    ///
    /// # Errors
    /// What the driver says of the first that could not be.
    pub(super) fn stop(&mut self) -> Result<(), ControlError> {
        self.stands = true;
        // In this order: what could not be stopped as a whole is started, and may be in what comes later.
        self.older.retain(|tenant| tenant.stop().is_ok());
        let stopped = self.found.stop();
        if stopped.is_err() {
            let _ = self.start();
        }
        stopped
    }

    /// Lets all its groups run, also those behind one that could not be started.
    ///
    /// # Errors
    /// What the driver says of the first that could not be.
    pub(super) fn start(&mut self) -> Result<(), ControlError> {
        self.stands = false;
        self.let_run()
    }

    /// As [`Self::start`].
    pub(super) fn let_run(&self) -> Result<(), ControlError> {
        for tenant in &self.older {
            // Refused is what was freed.
            let _ = tenant.start();
        }
        self.found.start()
    }

    /// Searches again if it is time to, and has what is new stand if the program does. What was found before stays: who is
    /// stopped must never be forgotten.
    ///
    /// # Errors
    /// A new group cannot be stopped.
    pub(super) fn search_again(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        if began < self.next {
            return Ok(());
        }
        // Not to be found at this moment: it ends, or makes something. The next search tells.
        let found = find(self.pid, self.simulated, newest(self.simulated)).ok();
        self.next = Instant::now() + SEARCH_EVERY.max(began.elapsed() * REST);
        let Some(found) = found.filter(|found| has_news(&self.found, found)) else { return Ok(()) };
        let before = std::mem::replace(&mut self.found, found);
        if has_news(&self.found, &before) {
            self.older.push(before);
        }
        if !self.stands {
            return Ok(());
        }
        self.stop().with_context(|| format!("new channel groups of process {}", self.pid))
    }
}

/// Whether there are groups, or channels of groups, that were not known.
fn has_news(known: &Tenant, found: &Tenant) -> bool {
    found.groups().any(|group| !known.groups().any(|known| known == group))
}
