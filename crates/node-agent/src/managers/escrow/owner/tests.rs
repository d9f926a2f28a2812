use super::*;
use std::os::fd::AsFd;

#[test]
fn owner_is_found_by_pidfd_until_the_process_ends() {
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
fn pid_is_read_from_fdinfo() {
    let fdinfo = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t8\nPid:\t4711\nNSpid:\t4711\t7\n";
    assert_eq!(pid_in(fdinfo), Some(4711));
    assert_eq!(pid_in("pos:\t0\n"), None);
}
