//! Removes versions of the library that no pod uses any more.

use super::files::{self, Error, Result};
use super::install::{Installed, Library};
use super::usage::{Usage, UsageError};
use super::version::Version;
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

impl Library {
    /// Removes the versions that are not in use and that no running agent has installed. Returns what was removed.
    ///
    /// # Errors
    /// An I/O error of the disk.
    pub fn collect(&self, in_use: &BTreeSet<Version>) -> Result<BTreeSet<Version>> {
        let _lock = self.lock()?;
        let mut collected = BTreeSet::new();
        for version in self.versions()?.difference(in_use) {
            if self.remove_version(version)? {
                collected.insert(version.clone());
            }
        }
        Ok(collected)
    }

    /// Removes a version unless an agent holds its lock. Returns whether it was removed.
    fn remove_version(&self, version: &Version) -> Result<bool> {
        let folder = self.root.join(version);
        if !is_unlocked(&folder)? {
            return Ok(false);
        }
        // Renamed first, so that a crash in between leaves no folder that looks complete and is not.
        let unfinished = self.root.join(format!("{}{version}", files::UNFINISHED));
        fs::rename(&folder, &unfinished).map_err(Error::disk("move away", &folder))?;
        files::remove(&unfinished)?;
        Ok(true)
    }
}

/// Whether no agent holds the folder's lock. The answer stays true while the caller has the library's lock, under
/// which agents lock versions.
fn is_unlocked(folder: &Path) -> Result<bool> {
    let file = File::open(folder).map_err(Error::disk("open", folder))?;
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(why)) => Err(Error::disk("lock", folder)(why)),
    }
}

/// Collects at intervals until `stop`.
pub async fn collect_periodically(
    library: Library,
    current: Installed,
    usage: Usage,
    every: Duration,
    stop: CancellationToken,
) {
    let mut collector = Collector::new(library, current, usage);
    while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
        let round = tokio::task::spawn_blocking(move || {
            match collector.round() {
                Ok(collected) if collected.is_empty() => {}
                Ok(collected) => {
                    tracing::info!(?collected, "removed versions of the library that no pod uses")
                }
                Err(why) => tracing::warn!("keeping all versions of the library: {why}"),
            }
            collector
        });
        match round.await {
            Ok(again) => collector = again,
            Err(why) => return tracing::error!("versions of the library are no longer collected: {why}"),
        }
    }
}

/// Collects the versions that were unused in this round and in the one before.
///
/// Two rounds, because kubelet records the answer of Allocate a moment after it receives it. An agent replaced in that
/// moment handed out a version that its successor finds nowhere.
#[derive(Debug)]
pub struct Collector {
    library: Library,
    usage: Usage,
    candidates: BTreeSet<Version>,
    /// This agent's own version, which it continues to hand out.
    _current: Installed,
}

/// Why a round removed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError {
    /// The folder of the library cannot be used.
    #[error(transparent)]
    Library(#[from] Error),
    /// It is unknown which versions are in use.
    #[error(transparent)]
    Usage(#[from] UsageError),
}

impl Collector {
    /// A collector for the folder that contains `current`.
    pub fn new(library: Library, current: Installed, usage: Usage) -> Self {
        Self { library, usage, candidates: BTreeSet::new(), _current: current }
    }

    /// One round. Returns what was removed.
    ///
    /// # Errors
    /// It is unknown which versions are in use, or an I/O error. The next round then starts without candidates.
    pub fn round(&mut self) -> Result<BTreeSet<Version>, CollectError> {
        let candidates = std::mem::take(&mut self.candidates);
        let all = self.library.versions()?;
        if all.len() <= 1 {
            return Ok(BTreeSet::new());
        }
        let unused = &all - &self.usage.versions()?;
        let collected = self.library.collect(&(&all - &(&unused & &candidates)))?;
        self.candidates = &unused - &collected;
        Ok(collected)
    }
}
