//! The owner of a deposited descriptor, as the kernel reports it for the process beside it. The manager's word does
//! not count.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};

use sluice_core::pod_cgroup::pod_of;

/// The unit that shares one part of the escrow's capacity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// A pod, by its uid: all its processes together.
    Pod(String),
    /// A process that is in no pod.
    Process(i32),
    /// Processes whose number is not visible here, all together.
    Unknown,
}

/// The owner of this process (a pidfd); `None` if the process has ended.
pub(super) fn of(process: BorrowedFd<'_>) -> Option<Owner> {
    let fdinfo = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok();
    let found = match fdinfo.as_deref().and_then(pid_in).filter(|pid| *pid > 0) {
        None => Owner::Unknown,
        Some(pid) => match fs::read_to_string(format!("/proc/{pid}/cgroup")).map(|text| pod_of(&text)) {
            Ok(Ok(pod)) => Owner::Pod(pod.uid),
            Ok(Err(_)) | Err(_) => Owner::Process(pid),
        },
    };
    // Checked last: the number may have been reused while the files of the process were read.
    (!sluice_sys::pidfd::has_ended(process)).then_some(found)
}

/// The number in a pidfd's fdinfo: 0 for a process outside our pid namespaces, -1 for one that has ended.
fn pid_in(fdinfo: &str) -> Option<i32> {
    fdinfo.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
