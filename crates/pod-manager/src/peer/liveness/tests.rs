use super::*;
use crate::peer::KernelProc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use std::process::Command;

#[test]
fn stopped_process_is_recognised_and_its_cpu_clock_stands_still() {
    let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    assert!(!is_stopped(&mut KernelProc, pid));
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert!(is_stopped(&mut KernelProc, pid));
    let before = cpu_ns(pid).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(cpu_ns(pid), Some(before));
    kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
    while cpu_ns(pid) == Some(before) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!is_stopped(&mut KernelProc, pid));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(cpu_ns(pid), None);
}

#[test]
fn frozen_control_groups_of_both_versions_are_recognised() {
    let files = |path: &Path| match path.to_str()? {
        "/sys/fs/cgroup/kubepods/pod1/cgroup.events" => Some("populated 1\nfrozen 1\n".to_owned()),
        "/sys/fs/cgroup/kubepods/pod2/cgroup.events" => Some("populated 1\nfrozen 0\n".to_owned()),
        "/sys/fs/cgroup/freezer/pod3/freezer.state" => Some("FROZEN\n".to_owned()),
        "/sys/fs/cgroup/freezer/pod4/freezer.state" => Some("THAWED\n".to_owned()),
        _ => None,
    };
    assert!(is_frozen("0::/kubepods/pod1\n", files));
    assert!(!is_frozen("0::/kubepods/pod2\n", files));
    assert!(is_frozen("9:cpu,memory:/pod3\n4:freezer:/pod3\n", files));
    assert!(!is_frozen("4:freezer:/pod4\n0::/\n", files));
}

#[test]
fn name_of_a_process_does_not_make_it_look_stopped() {
    assert_eq!(state_in("7 (a) T (b) S 1 7 7"), Some('S'));
}
