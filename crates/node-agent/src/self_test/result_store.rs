//! Self-test results in the node's state folder: one file for each GPU, driver and boot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sluice_nvrm::self_test::{SelfTestResult, SelfTestSubject};

/// Name prefix of folders that a killed test left behind.
const LEFT_BY_TESTS: &str = "sluice-doctor-";

/// The folder.
#[derive(Debug, Clone)]
pub(super) struct ResultStore(PathBuf);

impl ResultStore {
    /// A store in this folder. Removes what killed tests left there; no test may be running.
    pub(super) fn at(folder: PathBuf) -> Self {
        let store = Self(folder);
        for (name, path) in store.entries() {
            if name.starts_with(LEFT_BY_TESTS) {
                // A folder that cannot be removed does no harm.
                let _ = fs::remove_dir_all(path);
            }
        }
        store
    }

    /// The folder, where tests may also write.
    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// The file of the result about this GPU, driver and boot.
    pub(super) fn file(&self, about: &SelfTestSubject) -> PathBuf {
        let parts = [&about.gpu, &about.driver, &about.boot].map(|part| plain(part));
        self.0.join(format!("{}.json", parts.join("_")))
    }

    /// The stored result about this GPU, driver and boot.
    pub(super) fn stored(&self, about: &SelfTestSubject) -> Option<SelfTestResult> {
        let text = fs::read(self.file(about)).ok()?;
        serde_json::from_slice::<SelfTestResult>(&text).ok().filter(|result| result.is_for(about))
    }

    /// Removes all results of this GPU: those of other drivers and boots, and one that is to be repeated.
    pub(super) fn forget(&self, gpu: &str) -> io::Result<()> {
        let own = format!("{}_", plain(gpu));
        for (_, path) in self.entries().filter(|(name, _)| name.starts_with(&own)) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn entries(&self) -> impl Iterator<Item = (String, PathBuf)> + use<> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
    }
}

/// Makes a text safe as part of a file name: the driver's version is the driver's own text.
fn plain(part: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    part.chars().map(|letter| if fits(letter) { letter } else { '-' }).collect()
}

#[cfg(test)]
mod tests;
