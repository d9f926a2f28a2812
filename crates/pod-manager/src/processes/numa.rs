//! The NUMA node from which host memory comes. The kernel takes a page from the node of the CPU that makes it exist, and from another node once that
//! one has none left. So the thread that makes the pages runs on the CPUs of the GPU's node.
//!
//! A memory policy (`set_mempolicy`) would have the same effect. The default seccomp profiles of container runtimes refuse that call without
//! SYS_NICE, which the agent does not have.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::path::Path;
use std::{fs, io};
use tracing::debug;

/// Has the calling thread run on the CPUs of this NUMA node. If that is impossible, the thread runs on, and its memory comes from any node.
pub(super) fn run_on_node(node: Option<u32>) {
    let Some(node) = node else { return };
    if let Err(error) = restrict(Path::new("/sys"), node) {
        debug!(%error, node, "host memory for what leaves the GPU comes from any NUMA node");
    }
}

fn restrict(sysfs: &Path, node: u32) -> io::Result<()> {
    let this_thread = Pid::from_raw(0);
    let list = fs::read_to_string(sysfs.join(format!("devices/system/node/node{node}/cpulist")))?;
    let of_node =
        parse(list.trim()).ok_or_else(|| io::Error::other(format!("`{list}` is no list of CPUs")))?;
    let chosen = choose(&sched_getaffinity(this_thread)?, &of_node)?;
    chosen.map_or(Ok(()), |cpus| Ok(sched_setaffinity(this_thread, &cpus)?))
}

/// Those of the node's CPUs that the thread may use; `None` if it may use no others.
fn choose(allowed: &CpuSet, of_node: &[usize]) -> io::Result<Option<CpuSet>> {
    let may_use = |cpu: &&usize| allowed.is_set(**cpu).unwrap_or(false);
    let chosen: Vec<usize> = of_node.iter().filter(may_use).copied().collect();
    if chosen.is_empty() {
        return Err(io::Error::other("the manager may use no CPU of the node"));
    }
    let is_all =
        (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).count() == chosen.len();
    let mut cpus = CpuSet::new();
    chosen.iter().try_for_each(|cpu| cpus.set(*cpu))?;
    Ok((!is_all).then_some(cpus))
}

/// Reads a list such as `0-3,8`. A node without CPUs has an empty one.
fn parse(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CpuSet::count() {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests;
