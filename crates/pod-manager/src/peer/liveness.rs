//! Whether a process works, as the kernel reports it: its CPU clock, and whether it is stopped or frozen.

use super::ProcFs;
use nix::time::ClockId;
use nix::unistd::Pid;
use std::path::{Path, PathBuf};

/// Where the control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// CPU time that all threads of a process have used, nanoseconds; `None` if there is no such process.
pub(super) fn cpu_ns(pid: i32) -> Option<u64> {
    let time = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).and_then(ClockId::now).ok()?;
    let (seconds, ns) = (u64::try_from(time.tv_sec()).ok()?, u64::try_from(time.tv_nsec()).ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// Whether a process is stopped by a signal or a debugger, or its control group is frozen.
pub(super) fn is_stopped(proc: &mut impl ProcFs, pid: i32) -> bool {
    let state = proc.read(pid, "stat").ok().and_then(|stat| state_in(&stat));
    matches!(state, Some('T' | 't')) || proc.read(pid, "cgroup").is_ok_and(|cgroup| is_frozen(&cgroup, read))
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Field 3 of /proc/PID/stat, which follows the name in parentheses.
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether the control group in this text of /proc/PID/cgroup is frozen: in version 2 by its events, in version 1 by its freezer.
fn is_frozen(cgroup: &str, read: impl Fn(&Path) -> Option<String>) -> bool {
    cgroup.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return false };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            let events = read(&PathBuf::from(CGROUPS).join(path).join("cgroup.events"));
            return events.is_some_and(|events| events.lines().any(|event| event == "frozen 1"));
        }
        let is_freezer = controllers.split(',').any(|controller| controller == "freezer");
        let state = || read(&PathBuf::from(CGROUPS).join("freezer").join(path).join("freezer.state"));
        is_freezer && state().is_some_and(|state| state.trim() == "FROZEN")
    })
}

#[cfg(test)]
mod tests;
