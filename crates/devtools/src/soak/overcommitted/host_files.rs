//! The files on the host to which memory of processes leaves, as /proc shows them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How the manager names them.
const NAME: &str = "/memfd:sluice-memory";

/// The files that a process has open: bytes of their pages by the number of the inode.
pub(super) fn open_files(pid: i32) -> BTreeMap<u64, u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_one = |path: &Path| {
        fs::read_link(path).is_ok_and(|to| to.as_os_str().as_bytes().starts_with(NAME.as_bytes()))
    };
    let files = entries.map(|entry| entry.path()).filter(|path| is_one(path));
    let found = files.filter_map(|path| fs::metadata(path).ok());
    // A block has 512 bytes (stat(2)).
    found.map(|file| (file.ino(), 512 * file.blocks())).collect()
}

#[cfg(test)]
mod tests;
