//! Archives that depend on nothing but the content: sorted entries, one owner, one time, two modes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// Permissions of folders, and of files that their owner may execute.
const EXECUTABLE: u32 = 0o755;
/// Permissions of other files.
const PLAIN: u32 = 0o644;
/// Permissions of a folder in which each user may delete only their own files.
const STICKY: u32 = 0o1777;

/// A tar archive in memory whose entries all have the same time and belong to root.
pub(crate) struct Archive {
    builder: Builder<Vec<u8>>,
    time: u64,
}

impl Archive {
    /// An empty archive. `time` is that of all entries, in seconds since 1970.
    pub(crate) fn new(time: u64) -> Self {
        Self { builder: Builder::new(Vec::new()), time }
    }

    /// Adds a file with the given content.
    pub(crate) fn add_file(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let mut header = self.header(EntryType::Regular, PLAIN);
        header.set_size(content.len() as u64);
        self.builder.append_data(&mut header, path, content).with_context(|| format!("archiving {path}"))
    }

    /// Adds a folder without its content.
    pub(crate) fn add_folder(&mut self, path: &str) -> Result<()> {
        let mut header = self.header(EntryType::Directory, EXECUTABLE);
        self.builder
            .append_data(&mut header, format!("{path}/"), &[][..])
            .with_context(|| format!("archiving {path}"))
    }

    /// Adds all that `folder` contains, below `prefix`, in the order of the paths.
    pub(crate) fn add_tree(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        for path in below(folder)? {
            let inside = path.strip_prefix(folder).unwrap_or(&path);
            let name = Path::new(prefix).join(inside);
            self.add(&path, &name).with_context(|| format!("archiving {}", path.display()))?;
        }
        Ok(())
    }

    /// The finished archive.
    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        self.builder.into_inner().context("finishing an archive")
    }

    fn add(&mut self, path: &Path, name: &Path) -> Result<()> {
        let metadata = fs::symlink_metadata(path)?;
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
        if metadata.is_symlink() {
            let mut header = self.header(EntryType::Symlink, 0o777);
            return Ok(self.builder.append_link(&mut header, name, fs::read_link(path)?)?);
        }
        if metadata.is_dir() {
            // The other bits come from the umask of the machine.
            let mode = if mode & 0o1000 == 0 { EXECUTABLE } else { STICKY };
            let mut header = self.header(EntryType::Directory, mode);
            let mut name = name.as_os_str().to_owned();
            name.push("/");
            return Ok(self.builder.append_data(&mut header, name, &[][..])?);
        }
        let content = fs::read(path)?;
        let mut header = self.header(EntryType::Regular, if mode & 0o100 == 0 { PLAIN } else { EXECUTABLE });
        header.set_size(content.len() as u64);
        Ok(self.builder.append_data(&mut header, name, &content[..])?)
    }

    fn header(&self, kind: EntryType, mode: u32) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(self.time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        header
    }
}

/// All that a folder contains, sorted. A folder comes before its content.
fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        let entries = fs::read_dir(&next).with_context(|| format!("reading {}", next.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("reading {}", next.display()))?.path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Compresses bytes. The result carries no time, name or system.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    encoder.write_all(bytes).context("compressing")?;
    encoder.finish().context("compressing")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn tree(files: &[&str], mode: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        for name in files {
            let path = folder.path().join(name);
            fs::write(&path, name).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("b/two", folder.path().join("link")).unwrap();
        folder
    }

    fn archived(folder: &Path) -> Vec<u8> {
        let mut archive = Archive::new(1_700_000_000);
        archive.add_tree(folder, "").unwrap();
        archive.finish().unwrap()
    }

    #[test]
    fn trees_of_the_same_content_give_the_same_bytes_whatever_their_order_umask_and_times() {
        let (one, other) = (tree(&["one", "b/two"], 0o644), tree(&["b/two", "one"], 0o600));
        let old = std::time::SystemTime::UNIX_EPOCH;
        fs::File::open(other.path().join("one")).unwrap().set_modified(old).unwrap();
        fs::set_permissions(other.path().join("b"), fs::Permissions::from_mode(0o700)).unwrap();
        let (one, other) = (archived(one.path()), archived(other.path()));
        assert!(one == other, "the archives differ");
        assert!(gzip(&one).unwrap() == gzip(&other).unwrap(), "the compressed archives differ");
    }

    #[test]
    fn entries_are_sorted_and_carry_the_given_time_and_no_owner() {
        let bytes = archived(tree(&["one", "b/two"], 0o755).path());
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut names = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            let owner = (header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap());
            assert_eq!(owner, (0, 0, 1_700_000_000));
            let link = entry.link_name().unwrap().map(|to| to.display().to_string());
            names.push((entry.path().unwrap().display().to_string(), header.mode().unwrap(), link));
        }
        let expected = [
            ("b/", 0o755, None),
            ("b/two", 0o755, None),
            ("link", 0o777, Some("b/two")),
            ("one", 0o755, None),
        ];
        let expected = expected.map(|(name, mode, link)| (name.to_owned(), mode, link.map(str::to_owned)));
        assert_eq!(names, expected);
    }
}
