//! The commit that is released.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::command::output_of;

/// A checked-out commit without changes.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// The root of the repository.
    pub(crate) root: PathBuf,
    /// The commit's full number.
    pub(crate) commit: String,
    /// When it was made, in seconds since 1970: the only time in a release.
    pub(crate) time: u64,
    /// The version in the workspace's manifest.
    pub(crate) version: String,
    /// The address of the repository in the workspace's manifest.
    pub(crate) repository: String,
}

impl Source {
    /// A commit for tests.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self {
            root: "/nowhere".into(),
            commit: "0123456789abcdef0123456789abcdef01234567".into(),
            time: 1_700_000_000,
            version: "1.2.3".into(),
            repository: "https://example.com/sluice".into(),
        }
    }

    /// Reads the commit that is checked out at `root`. Refuses a folder with changes: no commit would describe the release.
    pub(crate) fn read(root: &Path, version: &str, repository: &str) -> Result<Self> {
        let git = |arguments: &[&str]| output_of(Command::new("git").arg("-C").arg(root).args(arguments));
        let changed = git(&["status", "--porcelain"])?;
        ensure!(
            changed.is_empty(),
            "{} differs from its commit; commit or remove these files:\n{changed}",
            root.display()
        );
        let time = git(&["log", "-1", "--format=%ct"])?;
        Ok(Self {
            root: root.to_owned(),
            commit: git(&["rev-parse", "HEAD"])?.trim().to_owned(),
            time: time
                .trim()
                .parse()
                .with_context(|| format!("git printed '{time}' as the commit's time"))?,
            version: version.to_owned(),
            repository: repository.to_owned(),
        })
    }

    /// The commit's time as RFC 3339 has it.
    pub(crate) fn time_text(&self) -> Result<String> {
        let time = i64::try_from(self.time).context("the commit's time is out of range")?;
        Ok(jiff::Timestamp::from_second(time).context("the commit's time is out of range")?.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn changed_files_are_refused_by_name_and_the_commits_time_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.arg("-C").arg(folder.path()).args(["-c", "user.name=a", "-c", "user.email=a@example.com"]);
            git.env("GIT_COMMITTER_DATE", "1700000000 +0900");
            output_of(git.args(arguments)).unwrap()
        };
        git(&["init", "--quiet"]);
        fs::write(folder.path().join("file"), "1").unwrap();
        git(&["add", "file"]);
        git(&["commit", "--quiet", "--message", "first"]);
        let source = Source::read(folder.path(), "1.2.3", "https://example.com").unwrap();
        assert_eq!((source.time, source.commit.len()), (1_700_000_000, 40));
        assert_eq!(source.time_text().unwrap(), "2023-11-14T22:13:20Z");
        fs::write(folder.path().join("file"), "2").unwrap();
        fs::write(folder.path().join("new"), "").unwrap();
        let error = Source::read(folder.path(), "1.2.3", "https://example.com").unwrap_err().to_string();
        assert!(error.contains(" M file") && error.contains("?? new"), "{error}");
    }
}
