//! One stopped process, and the mechanism that stops it.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Context;
use serde_json::{Value, json};
use sluice_load::checkpoint;
use sluice_load::driver::Driver;

use super::process_groups::{ProcessGroups, Releasable};
use super::{Arguments, By};

/// Limit in milliseconds for the end of a process's submitted work; then the driver's lock fails.
const DRAIN_TIMEOUT_MS: u32 = 5_000;

/// A stopped process.
pub(super) enum StoppedProcess {
    /// Its channel groups are disabled.
    ByGroups(ProcessGroups),
    /// The driver's lock stops it.
    ByLock { driver: Box<Driver>, pid: i32, pidfd: OwnedFd },
}

impl StoppedProcess {
    /// Stops a process.
    pub(super) fn stop(pid: i32, arguments: &Arguments) -> anyhow::Result<Self> {
        let groups = || {
            let mut groups = ProcessGroups::find(pid, arguments.simulated)?;
            groups.stop().with_context(|| format!("process {pid}"))?;
            Ok(Self::ByGroups(groups))
        };
        let lock = || {
            let driver = Box::new(Driver::open()?);
            let pidfd = sluice_sys::pidfd::open(pid).with_context(|| format!("process {pid}"))?;
            checkpoint::lock(&driver, pid, DRAIN_TIMEOUT_MS).with_context(|| format!("process {pid}"))?;
            Ok(Self::ByLock { driver, pid, pidfd })
        };
        choose(arguments.by, groups, lock)
    }

    /// Searches for new channel groups of the process, and disables them.
    pub(super) fn search_again(&mut self) -> anyhow::Result<()> {
        match self {
            Self::ByGroups(groups) => groups.search_again(),
            // The driver's lock stops the whole process.
            Self::ByLock { .. } => Ok(()),
        }
    }

    /// The line of output for scripts.
    pub(super) fn describe(&self) -> Value {
        match self {
            Self::ByGroups(groups) => json!({
                "hold": "held", "by": "groups", "pid": groups.pid(),
                "groups": groups.groups().into_iter().map(|group| json!({
                    "client": format!("{:#x}", group.client),
                    "group": format!("{:#x}", group.channel_group),
                    "channels": group.channels.len(),
                })).collect::<Vec<_>>(),
            }),
            Self::ByLock { pid, .. } => json!({ "hold": "held", "by": "lock", "pid": pid }),
        }
    }

    /// Whether the process has ended.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::ByGroups(groups) => groups.has_ended(),
            Self::ByLock { pidfd, .. } => sluice_sys::pidfd::has_ended(pidfd.as_fd()),
        }
    }

    /// Releases the process.
    pub(super) fn release(self) -> anyhow::Result<()> {
        match self {
            _ if self.has_ended() => Ok(()),
            Self::ByGroups(mut groups) => groups.start().with_context(|| format!("process {}", groups.pid())),
            Self::ByLock { driver, pid, .. } => {
                checkpoint::unlock(&driver, pid).with_context(|| format!("process {pid}"))
            }
        }
    }
}

/// Applies the chosen mechanism. [`By::Either`] uses the lock if the groups are not found or cannot be disabled.
fn choose<T>(
    by: By,
    groups: impl FnOnce() -> anyhow::Result<T>,
    lock: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    match by {
        By::Lock => lock(),
        By::Groups => groups(),
        By::Either => groups().or_else(|why| {
            eprintln!("sluice: {why:#}: trying the driver's lock");
            lock()
        }),
    }
}

#[cfg(test)]
mod tests;
