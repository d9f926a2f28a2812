//! The processes of the clients' pods, found with few reads of /proc.
//!
//! docs/design/unhooked-processes.md describes which files are read when.

use super::kernel_discovery::unless_exhausted;
use crate::peer::ProcFs;
use sluice_core::pod_cgroup::{PodCgroup, pod_of};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Scans between two reads of the cgroup of a process that is not young. A process may be moved into a pod's cgroup at any age.
const CGROUP_INTERVAL: u64 = 64;
/// Scans after which the descriptors of a process that never had the driver open are listed even if their number has not changed.
const LIST_INTERVAL: u64 = 8;
/// New process ids that are looked at between two scans. If there are more, the next scan finds those processes.
const MAX_NEW: i32 = 256;
/// Time for the numbers of descriptors between two scans: a pod may have thousands of processes. The next call goes on with the next process.
const COUNTED_WITHIN: Duration = Duration::from_micros(500);

/// The running processes.
#[derive(Debug)]
pub(super) struct PodProcesses<P> {
    root: PathBuf,
    proc: P,
    known: BTreeMap<i32, Known>,
    /// Number of the current scan.
    scan: u64,
    /// The newest process id, as of the last look.
    newest: i32,
    /// The process whose descriptors were counted last.
    last_counted: i32,
}

#[derive(Debug)]
struct Known {
    inode: u64,
    first_scan: u64,
    last_scan: u64,
    pod: Option<PodCgroup>,
    /// Number of its descriptors when they were last counted.
    descriptors: u64,
}

impl<P: ProcFs> PodProcesses<P> {
    /// No process is known. `root`: the path of /proc.
    pub(super) fn new(root: impl Into<PathBuf>, proc: P) -> Self {
        Self { root: root.into(), proc, known: BTreeMap::new(), scan: 0, newest: i32::MAX, last_counted: 0 }
    }

    /// Reads other files of processes.
    pub(super) fn files(&mut self) -> &mut P {
        &mut self.proc
    }

    /// Begins a scan. Returns the ids of the processes that may be in these pods, in ascending order.
    /// Errors: the manager has no descriptors or memory left, so the list would be incomplete.
    pub(super) fn in_pods(&mut self, pods: &HashSet<String>) -> io::Result<Vec<i32>> {
        self.scan += 1;
        self.newest = self.newest_id().unwrap_or(i32::MAX);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            if self.pod(pid, entry.ino())?.is_some_and(|pod| pods.contains(&pod.uid)) {
                found.push(pid);
            }
        }
        let scan = self.scan;
        self.known.retain(|_, known| known.last_scan == scan);
        found.sort_unstable();
        Ok(found)
    }

    /// The pod of the process that has this id now. Its cgroup takes 87 µs to read, so it is read as rarely as in a scan.
    /// Errors: as [`Self::in_pods`].
    pub(super) fn pod_now(&mut self, pid: i32) -> io::Result<Option<PodCgroup>> {
        match std::fs::metadata(self.root.join(pid.to_string())) {
            Ok(folder) => Ok(self.pod(pid, folder.ino())?.cloned()),
            Err(_) => Ok(None),
        }
    }

    fn pod(&mut self, pid: i32, inode: u64) -> io::Result<Option<&PodCgroup>> {
        let scan = self.scan;
        let known = self.known.get(&pid).filter(|known| known.inode == inode);
        let age = known.map_or(0, |known| scan - known.first_scan);
        // A container's first process is started outside the container's cgroup and then moved: a young process is read more often.
        // The process id spreads the reads over the scans.
        let is_due = age == 0 || age.is_power_of_two() && age < CGROUP_INTERVAL || {
            (scan + u64::from(pid.unsigned_abs())).is_multiple_of(CGROUP_INTERVAL)
        };
        if !is_due {
            let known = self.known.get_mut(&pid);
            return Ok(known.and_then(|known| {
                known.last_scan = scan;
                known.pod.as_ref()
            }));
        }
        let cgroup = unless_exhausted(self.proc.read(pid, "cgroup"))?;
        let pod = cgroup.and_then(|text| pod_of(&text).ok());
        let descriptors = known.map_or(u64::MAX, |known| known.descriptors);
        let known = Known { inode, first_scan: scan - age, last_scan: scan, pod, descriptors };
        self.known.insert(pid, known);
        Ok(self.known.get(&pid).and_then(|known| known.pod.as_ref()))
    }

    /// Between two scans: the processes of these pods that are new, or whose number of descriptors has changed. The kernel gives out ids in
    /// ascending order, so the new ones are known without a list of all processes.
    /// Errors: as [`Self::in_pods`].
    pub(super) fn changed_in_pods(&mut self, pods: &HashSet<String>) -> io::Result<Vec<i32>> {
        let newest = self.newest_id().unwrap_or(i32::MAX);
        let first = std::mem::replace(&mut self.newest, newest).saturating_add(1);
        if newest.saturating_sub(first) < MAX_NEW {
            for pid in first..=newest {
                if let Ok(folder) = std::fs::metadata(self.root.join(pid.to_string()))
                    && self.proc.is_process(pid)
                {
                    self.pod(pid, folder.ino())?;
                }
            }
        }
        let begun = Instant::now();
        let is_in_pods = |known: &Known| known.pod.as_ref().is_some_and(|pod| pods.contains(&pod.uid));
        let of_pods = self.known.iter().filter(|(_, known)| is_in_pods(known));
        let mut pids: Vec<i32> = of_pods.map(|(pid, _)| *pid).collect();
        let next = pids.partition_point(|pid| *pid <= self.last_counted);
        pids.rotate_left(next);
        let mut changed = Vec::new();
        for pid in pids {
            self.last_counted = pid;
            if self.has_changed(pid) {
                changed.push(pid);
            }
            if begun.elapsed() >= COUNTED_WITHIN {
                break;
            }
        }
        Ok(changed)
    }

    /// The newest id of a process or thread, from the last field of /proc/loadavg.
    fn newest_id(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.root.join("loadavg")).ok()?;
        text.split_ascii_whitespace().next_back()?.parse().ok()
    }

    /// The number of a process's descriptors: since Linux 6.2 the size of the folder, before that 0.
    pub(super) fn descriptor_count(&self, pid: i32) -> u64 {
        let folder = std::fs::metadata(self.root.join(pid.to_string()).join("fd"));
        folder.map_or(0, |folder| folder.size())
    }

    /// The next call looks at a process again, whether the number of its descriptors changes or not.
    pub(super) fn forget_count(&mut self, pid: i32) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.descriptors = 0;
        }
    }

    /// Whether a process that did not have the driver open may have it now.
    pub(super) fn may_have_opened(&mut self, pid: i32) -> bool {
        let is_due = (self.scan + u64::from(pid.unsigned_abs())).is_multiple_of(LIST_INTERVAL);
        self.has_changed(pid) || is_due || self.known.get(&pid).is_none_or(|known| known.descriptors == 0)
    }

    /// Whether a process has another number of descriptors than at the last call. Kernels before Linux 6.2 report none.
    fn has_changed(&mut self, pid: i32) -> bool {
        let count = self.descriptor_count(pid);
        let known = self.known.get_mut(&pid);
        known.is_none_or(|known| count != std::mem::replace(&mut known.descriptors, count))
    }
}

#[cfg(test)]
mod tests;
