//! Self-test results in the node's state folder: one file for each GPU, driver and boot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sluice_nvrm::selftest::{About, Verdict};

/// Name prefix of folders that a killed test left behind.
const LEFT_BY_TESTS: &str = "sluice-doctor-";

/// The folder.
#[derive(Debug, Clone)]
pub(super) struct ResultStore(PathBuf);

impl ResultStore {
    /// A store in this folder. Removes what killed tests left there; no test may be running.
    pub(super) fn at(folder: PathBuf) -> Self {
        let records = Self(folder);
        for (name, path) in records.entries() {
            if name.starts_with(LEFT_BY_TESTS) {
                // A folder that cannot be removed does no harm.
                let _ = fs::remove_dir_all(path);
            }
        }
        records
    }

    /// The folder, where tests may also write.
    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// The file of the result about this GPU, driver and boot.
    pub(super) fn file(&self, about: &About) -> PathBuf {
        let words = [&about.gpu, &about.driver, &about.boot].map(|word| plain(word));
        self.0.join(format!("{}.json", words.join("_")))
    }

    /// The stored result about this GPU, driver and boot.
    pub(super) fn kept(&self, about: &About) -> Option<Verdict> {
        let text = fs::read(self.file(about)).ok()?;
        serde_json::from_slice::<Verdict>(&text).ok().filter(|verdict| verdict.is_about(about))
    }

    /// Removes all results of this GPU: those of other drivers and boots, and one that is to be repeated.
    ///
    /// # Errors
    /// An I/O error of the disk.
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

/// Makes a word safe as part of a file name: the driver's version is the driver's own text.
fn plain(word: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    word.chars().map(|letter| if fits(letter) { letter } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_nvrm::selftest::Effect;

    fn write(records: &ResultStore, about: &About) {
        let proven = || Effect::Proven;
        let verdict = Verdict { about: about.clone(), slices: proven(), stops: proven(), counts: proven() };
        fs::write(records.file(about), serde_json::to_vec(&verdict).unwrap()).unwrap();
    }

    #[test]
    fn a_verdict_is_found_for_what_it_is_about_and_for_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let records = ResultStore::at(folder.path().to_owned());
        let about = About::now("580.1", "GPU-1");
        write(&records, &about);
        assert!(records.kept(&about).is_some());
        for other in [About::now("595.1", "GPU-1"), About::now("580.1", "GPU-2")] {
            assert_eq!(records.kept(&other), None);
        }
        let after_a_boot = About { boot: "another".to_owned(), ..about.clone() };
        fs::copy(records.file(&about), records.file(&after_a_boot)).unwrap();
        assert_eq!(records.kept(&after_a_boot), None, "what it says counts, not what it is called");
    }

    #[test]
    fn a_gpus_older_verdicts_go_and_those_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let records = ResultStore::at(folder.path().to_owned());
        let all =
            [("1", "GPU-1"), ("2", "GPU-1"), ("1", "GPU-11")].map(|(driver, gpu)| About::now(driver, gpu));
        all.iter().for_each(|about| write(&records, about));
        records.forget("GPU-1").unwrap();
        assert_eq!(all.map(|about| records.kept(&about).is_some()), [false, false, true]);
    }

    #[test]
    fn what_a_killed_test_has_left_goes_and_no_version_leads_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sluice-doctor-abc")).unwrap();
        let records = ResultStore::at(folder.path().to_owned());
        assert_eq!(records.entries().count(), 0);
        let file = records.file(&About::now("../../../etc/passwd", "GPU-1"));
        assert_eq!(file.parent(), Some(folder.path()));
    }
}
