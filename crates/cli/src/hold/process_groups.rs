//! The channel groups of a process, also those that it makes later, and their release whatever happens to the worker's code.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use sluice_comm::attach::ContextHandles;
use sluice_nvrm::ControlError;
use sluice_nvrm::discovery::{DiscoveredProcess, newest_client};

/// The least time between two searches. A search queries all client numbers from the newest down to the process's own, and no quantum
/// ends while it runs.
const SEARCH_EVERY: Duration = Duration::from_millis(500);
/// The time between two searches is at least this many times the duration of the last one.
const MIN_PAUSE_RATIO: u32 = 50;

/// A process and all channel groups that were found of it.
pub(super) struct ProcessGroups {
    pid: i32,
    simulated: bool,
    is_stopped: bool,
    /// The result of the last search that found a new group.
    newest: DiscoveredProcess,
    /// Results of earlier searches with groups that are not in `newest`: the process has freed them, or the search missed them. A group
    /// may be in several.
    older: Vec<DiscoveredProcess>,
    next_search: Instant,
}

impl ProcessGroups {
    /// Finds the groups of a process, which is not stopped.
    pub(super) fn find(pid: i32, simulated: bool) -> anyhow::Result<Self> {
        let newest = find(pid, simulated, read_newest_client(simulated))?;
        let next_search = Instant::now() + SEARCH_EVERY;
        Ok(Self { pid, simulated, is_stopped: false, newest, older: Vec::new(), next_search })
    }

    /// The groups, each once.
    pub(super) fn groups(&self) -> Vec<&ContextHandles> {
        let mut groups: Vec<&ContextHandles> = Vec::new();
        let newest_first = self.older.iter().chain([&self.newest]).rev();
        for group in newest_first.flat_map(DiscoveredProcess::groups) {
            let id = (group.client, group.channel_group);
            if !groups.iter().any(|known| (known.client, known.channel_group) == id) {
                groups.push(group);
            }
        }
        groups
    }

    /// Disables all groups. If a group of the newest result cannot be disabled, enables all again. An older result that the driver
    /// refuses was freed, and is forgotten.
    pub(super) fn stop(&mut self) -> Result<(), ControlError> {
        self.is_stopped = true;
        // Older results first: a failed stop enables its groups again, and they may be in a newer result too.
        self.older.retain(|result| result.stop().is_ok());
        let stopped = self.newest.stop();
        if stopped.is_err() {
            let _ = self.start();
        }
        stopped
    }

    /// Enables all groups, also those after one that could not be enabled. Returns the first error.
    pub(super) fn start(&mut self) -> Result<(), ControlError> {
        self.is_stopped = false;
        self.enable_all()
    }

    fn enable_all(&self) -> Result<(), ControlError> {
        for result in &self.older {
            // The driver refuses groups that were freed.
            let _ = result.start();
        }
        self.newest.start()
    }

    /// Searches for new groups if it is time, and disables them if the process is stopped. Earlier results are kept, because a disabled
    /// group must never be forgotten.
    pub(super) fn search_again(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        if began < self.next_search {
            return Ok(());
        }
        // A process that is ending or making a context may have no groups for a moment. The next search finds them.
        let found = find(self.pid, self.simulated, read_newest_client(self.simulated)).ok();
        self.next_search = Instant::now() + SEARCH_EVERY.max(began.elapsed() * MIN_PAUSE_RATIO);
        let Some(found) = found.filter(|found| has_unknown_groups(&self.newest, found)) else {
            return Ok(());
        };
        let before = std::mem::replace(&mut self.newest, found);
        if has_unknown_groups(&self.newest, &before) {
            self.older.push(before);
        }
        if !self.is_stopped {
            return Ok(());
        }
        self.stop().with_context(|| format!("new channel groups of process {}", self.pid))
    }
}

/// Whether `found` has groups, or channels of groups, that `known` does not have.
fn has_unknown_groups(known: &DiscoveredProcess, found: &DiscoveredProcess) -> bool {
    found.groups().any(|group| !known.groups().any(|known| known == group))
}

/// Finds the channel groups of a process.
pub(super) fn find(
    pid: i32,
    simulated: bool,
    newest_client: Option<u32>,
) -> anyhow::Result<DiscoveredProcess> {
    DiscoveredProcess::find(pid, simulated, newest_client).map_err(|why| anyhow!(why))
}

/// The newest client of the driver. Without it, a search finds only the first clients since boot.
pub(super) fn read_newest_client(simulated: bool) -> Option<u32> {
    if simulated { None } else { newest_client().inspect_err(|why| eprintln!("sluice: {why}")).ok() }
}

/// A process that can be released.
pub(super) trait Releasable {
    fn pid(&self) -> i32;
    fn has_ended(&self) -> bool;
    fn release(&self) -> Result<(), String>;
}

impl Releasable for ProcessGroups {
    fn pid(&self) -> i32 {
        self.pid
    }

    fn has_ended(&self) -> bool {
        self.newest.has_ended()
    }

    fn release(&self) -> Result<(), String> {
        self.enable_all().map_err(|why| why.to_string())
    }
}

/// Processes that are released when this value is dropped.
pub(super) struct ReleaseGuard<T: Releasable>(pub(super) Vec<T>);

impl<T: Releasable> ReleaseGuard<T> {
    /// Releases all processes, also those after one that could not be released. The error names the processes that are still stopped,
    /// and why. A process that has ended is not among them.
    pub(super) fn release(&mut self) -> anyhow::Result<()> {
        let mut failed = Vec::new();
        for process in self.0.drain(..) {
            if let Err(why) = process.release()
                && !process.has_ended()
            {
                failed.push(format!("process {} could not be released: {why}", process.pid()));
            }
        }
        if failed.is_empty() { Ok(()) } else { bail!(failed.join("\n")) }
    }
}

impl<T: Releasable> Drop for ReleaseGuard<T> {
    fn drop(&mut self) {
        if let Err(why) = self.release() {
            eprintln!("sluice: {why:#}");
        }
    }
}

#[cfg(test)]
mod tests;
