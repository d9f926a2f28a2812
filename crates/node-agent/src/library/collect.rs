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

/// Collects every now and then until told to stop, what was unused this time and the time before.
///
/// Twice, because kubelet learns what Allocate answered a moment before it writes it down: an agent that was replaced in
/// that moment gave a version that its successor sees nowhere.
pub async fn tidy(
    library: Library,
    current: Installed,
    usage: Usage,
    every: Duration,
    stop: CancellationToken,
) {
    let mut before = BTreeSet::new();
    while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
        let (library, usage, candidates) = (library.clone(), usage.clone(), before.clone());
        let round = tokio::task::spawn_blocking(move || round(&library, &usage, &candidates)).await;
        before = match round {
            Ok(Ok(unused)) => unused,
            Ok(Err(why)) => {
                tracing::warn!("keeping all versions of the library: {why}");
                BTreeSet::new()
            }
            Err(_panicked_or_ending) => BTreeSet::new(),
        };
    }
    drop(current);
}

/// Why a round removed nothing.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Library(#[from] Error),
    #[error(transparent)]
    Usage(#[from] UsageError),
}

/// Collects those of the candidates that are still unused. Returns what is unused now: the next candidates.
fn round(
    library: &Library,
    usage: &Usage,
    candidates: &BTreeSet<Version>,
) -> Result<BTreeSet<Version>, RoundError> {
    let all = library.versions()?;
    if all.len() <= 1 {
        return Ok(BTreeSet::new());
    }
    let unused = &all - &usage.versions()?;
    let collected = library.collect(&(&all - &(&unused & candidates)))?;
    for version in &collected {
        tracing::info!(%version, "removed a version of the library that no pod uses");
    }
    Ok(&unused - &collected)
}
