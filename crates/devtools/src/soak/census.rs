//! The soak's processes, as /proc shows them.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessFacts {
    pub(super) pid: i32,
    pub(super) parent: i32,
    /// As in /proc/PID/stat: `T` is stopped, `Z` has ended.
    pub(super) state: char,
    /// The command line, with blanks.
    pub(super) command: String,
}

/// What a process uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    pub(super) pid: i32,
    pub(super) rss_kib: u64,
    /// Without pidfds: the manager keeps one for each connection that a running process has given up, 1024 at most.
    pub(super) descriptors: usize,
    pub(super) threads: usize,
}

/// All processes but this one of which the command line or the environment contains the path of `folder`.
pub(super) fn processes_of(folder: &Path) -> Vec<ProcessFacts> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = std::process::id().cast_signed();
    pids.filter(|pid| *pid != own).filter_map(|pid| facts(pid, folder.as_os_str().as_bytes())).collect()
}

fn facts(pid: i32, folder: &[u8]) -> Option<ProcessFacts> {
    let file = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let (command, environment) = (file("cmdline"), file("environ"));
    let is_in = |text: &[u8]| text.windows(folder.len()).any(|part| part == folder);
    if !is_in(&command) && !is_in(&environment) {
        return None;
    }
    let (state, parent) = state_and_parent(&String::from_utf8_lossy(&file("stat")))?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    Some(ProcessFacts { pid, parent, state, command: command.trim_end().to_owned() })
}

/// Fields 3 and 4 of /proc/PID/stat. The second field is a name in parentheses that may contain anything.
fn state_and_parent(stat: &str) -> Option<(char, i32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// What a process uses; zeros if it has ended.
pub(super) fn usage(pid: i32) -> Usage {
    let entries = |name: &str| fs::read_dir(format!("/proc/{pid}/{name}")).into_iter().flatten().flatten();
    let is_pidfd = |path: &Path| fs::read_link(path).is_ok_and(|to| to.ends_with("anon_inode:[pidfd]"));
    let descriptors = entries("fd").filter(|entry| !is_pidfd(&entry.path())).count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let rss = rss.and_then(|text| text.split_whitespace().next()).and_then(|number| number.parse().ok());
    Usage { pid, rss_kib: rss.unwrap_or(0), descriptors, threads: entries("task").count() }
}

#[cfg(test)]
mod tests;
