//! Removes versions that nobody uses any more.

use super::entry;
use super::error::{Error, Result};
use super::install::{Installed, Library};
use super::usage::{Usage, UsageError};
use super::version::Version;
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

impl Library {
    /// Removes the versions that are not in use and that no living agent has as its own, and says which.
    ///
    /// # Errors
    /// The disk's.
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

    /// Whether it could be removed: not if an agent holds it.
    fn remove_version(&self, version: &Version) -> Result<bool> {
        let folder = self.root.join(version);
        if !unclaimed(&folder)? {
            return Ok(false);
        }
        // From its name first, so that a crash in between leaves no folder that looks whole and is not.
        let unfinished = self.root.join(format!("{}{version}", entry::UNFINISHED));
        fs::rename(&folder, &unfinished).map_err(Error::disk("move away", &folder))?;
        entry::remove(&unfinished)?;
        Ok(true)
    }
}

/// Whether no agent holds the folder. The answer stays true while the caller has the library's lock: agents claim under it.
fn unclaimed(folder: &Path) -> Result<bool> {
    let file = File::open(folder).map_err(Error::disk("open", folder))?;
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(why)) => Err(Error::disk("lock", folder)(why)),
    }
}

/// Collects every now and then until told to stop.
pub async fn tidy(
    library: Library,
    current: Installed,
    usage: Usage,
    every: Duration,
    stop: CancellationToken,
) {
    let mut tidier = Tidier::new(library, current, usage);
    while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
        let round = tokio::task::spawn_blocking(move || {
            match tidier.round() {
                Ok(collected) if collected.is_empty() => {}
                Ok(collected) => {
                    tracing::info!(?collected, "removed versions of the library that no pod uses")
                }
                Err(why) => tracing::warn!("keeping all versions of the library: {why}"),
            }
            tidier
        });
        match round.await {
            Ok(again) => tidier = again,
            Err(why) => return tracing::error!("versions of the library are no longer collected: {why}"),
        }
    }
}

/// Collects what was unused this time and the time before.
///
/// Twice, because kubelet learns what Allocate answered a moment before it writes it down: an agent that was replaced in
/// that moment gave a version that its successor sees nowhere.
#[derive(Debug)]
pub struct Tidier {
    library: Library,
    usage: Usage,
    candidates: BTreeSet<Version>,
    /// This agent's own version, which it goes on giving.
    _current: Installed,
}

/// Why a round removed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TidyError {
    /// The folder cannot be worked on.
    #[error(transparent)]
    Library(#[from] Error),
    /// It is not known what is in use.
    #[error(transparent)]
    Usage(#[from] UsageError),
}

impl Tidier {
    /// For the folder that `current` lies in.
    pub fn new(library: Library, current: Installed, usage: Usage) -> Self {
        Self { library, usage, candidates: BTreeSet::new(), _current: current }
    }

    /// One look at what is in use. Returns what was removed.
    ///
    /// # Errors
    /// It is not known what is in use, or the disk's. The next round starts from nothing then.
    pub fn round(&mut self) -> Result<BTreeSet<Version>, TidyError> {
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
