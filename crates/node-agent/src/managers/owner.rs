//! Whose a duplicate is: what the kernel says of the process beside it, whatever the manager says.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};

use sluice_core::pod_cgroup::pod_of;

/// Who is held to one part of what can be kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// A pod, by its uid: all its processes together.
    Pod(String),
    /// A process that is in no pod.
    Process(i32),
    /// A process of which the kernel tells no number here: all such together.
    Unknown,
}

/// Whose process this is, by its pidfd; `None` if it has ended.
pub(super) fn of(process: BorrowedFd<'_>) -> Option<Owner> {
    let fdinfo = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok();
    let found = match fdinfo.as_deref().and_then(pid_in).filter(|pid| *pid > 0) {
        None => Owner::Unknown,
        Some(pid) => match fs::read_to_string(format!("/proc/{pid}/cgroup")).map(|text| pod_of(&text)) {
            Ok(Ok(pod)) => Owner::Pod(pod.uid),
            Ok(Err(_)) | Err(_) => Owner::Process(pid),
        },
    };
    // Only now: the number may have become another process's while its files were read.
    (!sluice_sys::pidfd::has_ended(process)).then_some(found)
}

/// The number in a pidfd's fdinfo: 0 for a process that no namespace of ours shows, -1 for one that has ended.
fn pid_in(fdinfo: &str) -> Option<i32> {
    fdinfo.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_process_is_known_by_its_pidfd_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("100000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let pidfd = sluice_sys::pidfd::open(pid).unwrap();
        let own = pod_of(&fs::read_to_string("/proc/self/cgroup").unwrap());
        let expected = own.map_or(Owner::Process(pid), |pod| Owner::Pod(pod.uid));
        assert_eq!(of(pidfd.as_fd()), Some(expected));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(of(pidfd.as_fd()), None);
    }

    #[test]
    fn the_number_is_read_from_among_the_other_fields() {
        let fdinfo = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t8\nPid:\t4711\nNSpid:\t4711\t7\n";
        assert_eq!(pid_in(fdinfo), Some(4711));
        assert_eq!(pid_in("pos:\t0\n"), None);
    }
}
