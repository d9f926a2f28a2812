//! Whether the containers of pods have got the driver, as seen in /proc.
//!
//! All paths mount the driver's library into the container, and any user may read `/proc/PID/mountinfo`. Device nodes are seen in
//! `/proc/PID/root/dev`, which needs CAP_SYS_PTRACE. Simulated GPUs have no device nodes, so they are expected only if the agent's own
//! container has them. A tenant may mount a file system of its own at `/dev`, and a FUSE or NFS server may never answer, so only a tmpfs is
//! read there: container runtimes mount one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sluice_core::pod_cgroup::pod_of;

/// The name of the driver's library, before its version.
const LIBRARY: &str = "libcuda.so";

/// What one container lacks; `None` if it has the driver.
pub(super) type Lack = Option<String>;

/// Looks at a process of each of these containers, which are to have this many GPUs. A container without a process is left out.
pub(super) fn look(proc: &Path, gpus: &BTreeMap<String, usize>) -> BTreeMap<String, Lack> {
    let expects_nodes = proc.join("self/root/dev/nvidiactl").exists();
    let mut found = BTreeMap::new();
    for process in fs::read_dir(proc).into_iter().flatten().flatten() {
        let folder = process.path();
        let Some(container) = container_of(&folder) else { continue };
        let Some(count) = gpus.get(&container).filter(|_| !found.contains_key(&container)) else { continue };
        // A process that has ended meanwhile has no mounts to read.
        let Ok(mounts) = fs::read(folder.join("mountinfo")) else { continue };
        let mounts = String::from_utf8_lossy(&mounts);
        let lack = if !has_library(&mounts) {
            Some(format!("no {LIBRARY} is mounted into it"))
        } else if expects_nodes && has_tmpfs_at_dev(&mounts) {
            let nodes = device_nodes(&folder).filter(|nodes| nodes < count);
            nodes.map(|nodes| format!("it has {nodes} device nodes of GPUs, expected {count}"))
        } else {
            None
        };
        found.insert(container, lack);
    }
    found
}

/// The container of a process; `None` for another entry of /proc too.
fn container_of(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_str()?;
    if !name.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    pod_of(&fs::read_to_string(folder.join("cgroup")).ok()?).ok()?.container
}

/// Whether the driver's library is mounted. A file of this name in a volume of the pod, of a ConfigMap for example, does not count.
fn has_library(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let Some((root, point)) = root_and_point(line) else { return false };
        let is_in_volume = root.contains("/volumes/") || root.contains("/volume-subpaths/");
        !is_in_volume && point.rsplit('/').next().is_some_and(|name| name.starts_with(LIBRARY))
    })
}

/// Whether the topmost mount at `/dev`, which is the last one listed, is a tmpfs.
fn has_tmpfs_at_dev(mounts: &str) -> bool {
    let is_at_dev = |line: &&str| root_and_point(line).is_some_and(|(_, point)| point == "/dev");
    mounts.lines().rfind(is_at_dev).is_some_and(|line| line.contains(" - tmpfs "))
}

/// The fourth and fifth field of a line of mountinfo: the folder or file of its file system that is mounted, and the mount point.
fn root_and_point(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.split(' ').skip(3);
    Some((fields.next()?, fields.next()?))
}

/// Number of device nodes of GPUs, `nvidia0` and so on; `None` if the folder cannot be read.
fn device_nodes(folder: &Path) -> Option<usize> {
    let entries = fs::read_dir(folder.join("root/dev")).ok()?;
    let is_gpu = |name: &str| {
        let digits = name.strip_prefix("nvidia").unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    Some(entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_gpu)).count())
}

#[cfg(test)]
mod tests;
