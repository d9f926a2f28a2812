//! Cgroups like those that kubelet makes for pods, by which a pod-manager identifies processes. Needs root and a writable hierarchy.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

/// Mount points of cgroup hierarchies, the most common first.
const HIERARCHIES: [&str; 4] =
    ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup"];

/// How long removal waits for killed processes: the driver of a GPU frees their memory before they leave their cgroup.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// A folder of cgroups. They are removed when this is dropped, except those that still contain a process after ten seconds.
#[derive(Debug)]
pub struct PodCgroups {
    root: PathBuf,
}

impl PodCgroups {
    /// Creates the folder. Returns the reason if that is impossible here.
    pub fn create(name: &str) -> Result<Self, String> {
        let mut why = String::new();
        for hierarchy in HIERARCHIES {
            let root = Path::new(hierarchy).join(name);
            // Only in a cgroup hierarchy does a new directory contain this file.
            match fs::create_dir(&root).map(|()| root.join("cgroup.procs").exists()) {
                Ok(true) => return Ok(Self { root }),
                Ok(false) => drop(fs::remove_dir(&root)),
                Err(error) => why = format!("{hierarchy}: {error}"),
            }
        }
        Err(why)
    }

    /// The cgroup of the one container of a pod, which a process joins by writing its pid into `cgroup.procs`.
    pub fn of_pod(&self, uid: &str) -> anyhow::Result<PathBuf> {
        let container = format!("{:0<64}", uid.replace('-', ""));
        let cgroup = self.root.join(format!("kubepods/burstable/pod{uid}/{container}"));
        fs::create_dir_all(&cgroup).with_context(|| format!("cannot make {}", cgroup.display()))?;
        Ok(cgroup)
    }
}

impl Drop for PodCgroups {
    fn drop(&mut self) {
        let begun = Instant::now();
        remove(&self.root);
        while self.root.exists() && begun.elapsed() < REMOVAL_LIMIT {
            thread::sleep(Duration::from_millis(20));
            remove(&self.root);
        }
    }
}

fn remove(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).for_each(|entry| remove(&entry.path()));
    let _ = fs::remove_dir(folder);
}
