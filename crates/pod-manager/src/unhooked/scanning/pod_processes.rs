//! The processes of the clients' pods, found with few reads of /proc.
//!
//! docs/design/unhooked-processes.md describes which files are read when.

use super::kernel_discovery::unless_exhausted;
use super::turns::in_turn;
use crate::peer::ProcFs;
use sluice_core::pod_cgroup::{PodCgroup, pod_of};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Searches, complete or not, between two reads of the cgroup of a process that is not young. A process may be moved into a pod's cgroup at any
/// age.
const CGROUP_INTERVAL: u64 = 512;
/// Cgroups that one search reads, 87 µs each. Each pod has its turn, and so have the processes of which the pod is not known. The next search goes
/// on, be it complete or not.
const MOST_READ: usize = 1 << 10;
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
    /// Number of the current scan, which is a complete search.
    scan: u64,
    /// Number of the current search.
    search: u64,
    /// The newest process id, as of the last look.
    newest: i32,
    /// The process whose descriptors were counted last.
    last_counted: i32,
}

#[derive(Debug)]
struct Known {
    inode: u64,
    last_scan: u64,
    pod: Option<PodCgroup>,
    /// The search in which the cgroup is to be read, and the number of searches from the last read until then; 0: it was never read.
    next_read: u64,
    interval: u64,
    /// Number of its descriptors when they were last counted.
    descriptors: u64,
}

impl Known {
    fn is_in(&self, pods: &HashSet<String>) -> bool {
        self.pod.as_ref().is_some_and(|pod| pods.contains(&pod.uid))
    }

    /// The UID of its pod; empty: it is in no pod, or its cgroup was not read yet.
    fn pod_uid(&self) -> &str {
        self.pod.as_ref().map_or("", |pod| &pod.uid)
    }
}

impl<P: ProcFs> PodProcesses<P> {
    /// No process is known. `root`: the path of /proc.
    pub(super) fn new(root: impl Into<PathBuf>, proc: P) -> Self {
        Self {
            root: root.into(),
            proc,
            known: BTreeMap::new(),
            scan: 0,
            search: 0,
            newest: i32::MAX,
            last_counted: 0,
        }
    }

    /// Reads other files of processes.
    pub(super) fn files(&mut self) -> &mut P {
        &mut self.proc
    }

    /// Begins a scan. Returns the ids of the processes that may be in these pods, in ascending order.
    /// Errors: the manager has no descriptors or memory left, so the list would be incomplete.
    pub(super) fn in_pods(&mut self, pods: &HashSet<String>) -> io::Result<Vec<i32>> {
        self.scan += 1;
        self.search += 1;
        self.newest = self.newest_id().unwrap_or(i32::MAX);
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) {
                self.note(pid, entry.ino());
            }
        }
        let scan = self.scan;
        self.known.retain(|_, known| known.last_scan == scan);
        self.read_due(MOST_READ)?;
        let of_pods = self.known.iter().filter(|(_, known)| known.is_in(pods));
        Ok(of_pods.map(|(pid, _)| *pid).collect())
    }

    /// The UID of the pod of a process, as it was read last.
    pub(super) fn pod(&self, pid: i32) -> Option<&str> {
        self.known.get(&pid)?.pod.as_ref().map(|pod| pod.uid.as_str())
    }

    /// The pod of the process that has this id now. Its cgroup takes 87 µs to read, so it is read only if it never was.
    /// Errors: as [`Self::in_pods`].
    pub(super) fn pod_now(&mut self, pid: i32) -> io::Result<Option<PodCgroup>> {
        let Ok(folder) = std::fs::metadata(self.root.join(pid.to_string())) else { return Ok(None) };
        self.note(pid, folder.ino());
        self.read_first(pid)?;
        Ok(self.known.get(&pid).and_then(|known| known.pod.clone()))
    }

    /// Notes that a process with this id and this folder is there.
    fn note(&mut self, pid: i32, inode: u64) {
        let (scan, search) = (self.scan, self.search);
        let new = || Known {
            inode,
            last_scan: scan,
            pod: None,
            next_read: search,
            interval: 0,
            descriptors: u64::MAX,
        };
        let known = self.known.entry(pid).or_insert_with(new);
        if known.inode != inode {
            *known = new();
        }
        known.last_scan = scan;
    }

    /// Reads the cgroups that are due, `most` at most.
    fn read_due(&mut self, most: usize) -> io::Result<()> {
        let due = self.known.iter().filter(|(_, known)| known.next_read <= self.search);
        let due = due.map(|(pid, known)| ((known.next_read, *pid), known.pod_uid(), *pid)).collect();
        let due: Vec<i32> = in_turn(due).take(most).collect();
        due.into_iter().try_for_each(|pid| self.read_cgroup(pid))
    }

    /// Reads the cgroup of a process if it was never read.
    fn read_first(&mut self, pid: i32) -> io::Result<()> {
        let is_unread = self.known.get(&pid).is_some_and(|known| known.interval == 0);
        if is_unread { self.read_cgroup(pid) } else { Ok(()) }
    }

    /// Reads the cgroup of a process. A container's first process, and that of `kubectl exec`, starts outside the container's cgroup and is then
    /// moved: a young process in no pod is read more often.
    fn read_cgroup(&mut self, pid: i32) -> io::Result<()> {
        let cgroup = unless_exhausted(self.proc.read(pid, "cgroup"))?;
        let Some(known) = self.known.get_mut(&pid) else { return Ok(()) };
        known.pod = cgroup.and_then(|text| pod_of(&text).ok());
        known.interval = if known.pod.is_some() {
            CGROUP_INTERVAL
        } else {
            (2 * known.interval).clamp(1, CGROUP_INTERVAL)
        };
        // The process id spreads the reads over the searches.
        let spread = (self.search + u64::from(pid.unsigned_abs())) % CGROUP_INTERVAL;
        let is_young = known.interval < CGROUP_INTERVAL;
        known.next_read = self.search + if is_young { known.interval } else { CGROUP_INTERVAL - spread };
        Ok(())
    }

    /// Between two scans: the processes of these pods that are new, or whose number of descriptors has changed. The kernel gives out ids in
    /// ascending order, so the new ones are known without a list of all processes.
    /// Errors: as [`Self::in_pods`].
    pub(super) fn changed_in_pods(&mut self, pods: &HashSet<String>) -> io::Result<Vec<i32>> {
        self.search += 1;
        let newest = self.newest_id().unwrap_or(i32::MAX);
        let first = std::mem::replace(&mut self.newest, newest).saturating_add(1);
        if newest.saturating_sub(first) < MAX_NEW {
            for pid in first..=newest {
                if let Ok(folder) = std::fs::metadata(self.root.join(pid.to_string()))
                    && self.proc.is_process(pid)
                {
                    self.note(pid, folder.ino());
                    self.read_first(pid)?;
                }
            }
        }
        self.read_due(MOST_READ - MAX_NEW.unsigned_abs() as usize)?;
        let begun = Instant::now();
        let of_pods = self.known.iter().filter(|(_, known)| known.is_in(pods));
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
