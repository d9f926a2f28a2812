//! Which processes may be those of a client's pod: as little of /proc is read as that takes.
//!
//! A process is known again by its number and the inode of its folder, which come with the list of /proc: nothing of it is opened. Its
//! cgroup is read when it is new, a few more times while it is young (a container's first process is made outside of it and moved), and
//! after that every [`SETTLED`] looks.

use super::kernel::its;
use crate::peer::ProcFs;
use sluice_core::pod_cgroup::pod_of;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::PathBuf;

/// After so many looks a process is young no more. It may be moved into a pod's cgroup then too: after as many again it is noticed.
const SETTLED: u64 = 64;
/// After so many looks the descriptors of a process that has never had the driver open are listed whether their number has changed or not.
const LISTED: u64 = 8;

/// The processes that are there.
#[derive(Debug)]
pub(super) struct Processes<P> {
    root: PathBuf,
    proc: P,
    known: HashMap<i32, Known>,
    look: u64,
}

#[derive(Debug)]
struct Known {
    inode: u64,
    /// The look at which it was new, and the one at which it was there last.
    since: u64,
    there: u64,
    /// Its pod's uid.
    pod: Option<String>,
    /// How many descriptors it had when they were listed last.
    descriptors: u64,
}

impl<P: ProcFs> Processes<P> {
    /// Nobody is known. `root`: where /proc is.
    pub(super) fn new(root: impl Into<PathBuf>, proc: P) -> Self {
        Self { root: root.into(), proc, known: HashMap::new(), look: 0 }
    }

    /// What else is read of processes.
    pub(super) fn files(&mut self) -> &mut P {
        &mut self.proc
    }

    /// The numbers of those that may be in these pods, in order.
    ///
    /// # Errors
    /// Not all could be looked at, for want of something of ours.
    pub(super) fn in_pods(&mut self, pods: &HashSet<String>) -> io::Result<Vec<i32>> {
        self.look += 1;
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            if self.pod(pid, entry.ino())?.is_some_and(|pod| pods.contains(pod)) {
                found.push(pid);
            }
        }
        let look = self.look;
        self.known.retain(|_, known| known.there == look);
        found.sort_unstable();
        Ok(found)
    }

    fn pod(&mut self, pid: i32, inode: u64) -> io::Result<Option<&String>> {
        let look = self.look;
        let known = self.known.get(&pid).filter(|known| known.inode == inode);
        let age = known.map_or(0, |known| look - known.since);
        // Not all of them at the same look.
        let is_due = age == 0 || age.is_power_of_two() && age < SETTLED || {
            (look + u64::from(pid.unsigned_abs())).is_multiple_of(SETTLED)
        };
        if !is_due {
            let known = self.known.get_mut(&pid);
            return Ok(known.and_then(|known| {
                known.there = look;
                known.pod.as_ref()
            }));
        }
        let pod = its(self.proc.read(pid, "cgroup"))?.and_then(|text| pod_of(&text).ok()).map(|pod| pod.uid);
        let descriptors = known.map_or(u64::MAX, |known| known.descriptors);
        let known = Known { inode, since: look - age, there: look, pod, descriptors };
        Ok(self.known.entry(pid).insert_entry(known).into_mut().pod.as_ref())
    }

    /// Whether a process that had not opened the driver may have by now.
    pub(super) fn may_have_opened(&mut self, pid: i32) -> bool {
        let Some(known) = self.known.get_mut(&pid) else { return true };
        // Since Linux 6.2 the size of the folder is how many there are; before that it is 0.
        let folder = std::fs::metadata(self.root.join(pid.to_string()).join("fd"));
        let count = folder.map_or(0, |folder| folder.size());
        let is_due = (self.look + u64::from(pid.unsigned_abs())).is_multiple_of(LISTED);
        let changed = count == 0 || count != std::mem::replace(&mut known.descriptors, count);
        is_due || changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    const POD: &str = "01234567-89ab-cdef-0123-456789abcdef";

    /// A made-up /proc, and how much was read of it.
    struct Files<'a>(&'a Path, usize);

    impl ProcFs for Files<'_> {
        fn read(&mut self, pid: i32, file: &str) -> io::Result<String> {
            self.1 += 1;
            fs::read_to_string(self.0.join(pid.to_string()).join(file))
        }
    }

    fn put(root: &Path, pid: i32, cgroup: &str) {
        let folder = root.join(pid.to_string());
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
    }

    fn of_pod() -> String {
        format!("/kubepods/besteffort/pod{POD}/{}", "a".repeat(64))
    }

    #[test]
    fn a_process_is_read_when_it_is_new_and_hardly_ever_after_that() {
        let root = tempfile::tempdir().unwrap();
        (1..=640).for_each(|pid| put(root.path(), pid, "/system.slice"));
        put(root.path(), 700, &of_pod());
        let mut processes = Processes::new(root.path(), Files(root.path(), 0));
        let pods = HashSet::from([POD.to_owned()]);
        let mut read = Vec::new();
        for _ in 0..200 {
            assert_eq!(processes.in_pods(&pods).unwrap(), [700]);
            read.push(std::mem::take(&mut processes.files().1));
        }
        assert_eq!(read[0], 641);
        let later: usize = read[100..].iter().sum();
        assert_eq!(later / 100, 10, "a sixty-fourth of them each time");
        fs::remove_dir_all(root.path().join("700")).unwrap();
        put(root.path(), 701, &of_pod());
        assert_eq!(processes.in_pods(&pods).unwrap(), [701]);
    }

    #[test]
    fn who_is_moved_into_a_pod_is_found_and_a_number_that_is_given_again_is_somebody_else() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), 7, "/");
        put(root.path(), 8, &of_pod());
        let mut processes = Processes::new(root.path(), Files(root.path(), 0));
        let pods = HashSet::from([POD.to_owned()]);
        assert_eq!(processes.in_pods(&pods).unwrap(), [8]);
        put(root.path(), 7, &of_pod());
        assert_eq!(processes.in_pods(&pods).unwrap(), [7, 8], "a container's first process");
        for _ in 0..200 {
            processes.in_pods(&pods).unwrap();
        }
        // Another process, in another folder, has the number.
        fs::rename(root.path().join("8"), root.path().join("old")).unwrap();
        put(root.path(), 8, "/");
        assert_eq!(processes.in_pods(&pods).unwrap(), [7]);
        put(root.path(), 8, &of_pod());
        let found = (0..64).position(|_| processes.in_pods(&pods).unwrap() == [7, 8]);
        assert!(found.is_some());
    }

    /// `cargo test -p sluice-pod-manager --release --lib -- --ignored --nocapture ten_thousand`: figures of docs/benchmarks.md.
    #[test]
    #[ignore = "a measurement"]
    fn ten_thousand_processes() {
        let root = tempfile::tempdir().unwrap();
        (1..=10_000).for_each(|pid| put(root.path(), pid, "/system.slice/of-nobody.service"));
        let mut processes = Processes::new(root.path(), Files(root.path(), 0));
        let looks = (0..200).map(|_| {
            let start = std::time::Instant::now();
            processes.in_pods(&HashSet::new()).unwrap();
            start.elapsed()
        });
        let looks: Vec<_> = looks.collect();
        let mean = looks[100..].iter().sum::<std::time::Duration>() / 100;
        println!("first look {:?}, later ones {mean:?} on average", looks[0]);
    }
}
