use super::*;
use sluice_core::processes::lock_handles;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Locks made by a script, which records the commands in a log.
fn locks(folder: &Path, script: &str) -> (DriverLocks, PathBuf) {
    let (program, log) = (folder.join("helper"), folder.join("log"));
    let script = script.replace("LOG", &log.display().to_string());
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (DriverLocks::with_helper(program), log)
}

fn lock_of_this_process(locks: &DriverLocks) -> Box<dyn ChannelControl> {
    let pid = i32::try_from(std::process::id()).unwrap();
    locks.control_of(pid, sluice_sys::pidfd::open(pid).unwrap())
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn driver_is_loaded_by_a_thread_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"while read line; do echo "$line" >> LOG; while test "$line" = open -a ! -e LOG.go; do sleep 0.01; done; echo ok; done"#;
    let (locks, log) = locks(folder.path(), script);
    assert!(!locks.load());
    until("the request to the helper", || log.exists());
    assert!(!locks.load(), "the driver is loading");
    std::fs::write(log.with_extension("go"), "").unwrap();
    until("the driver to be loaded", || locks.load());
    lock_of_this_process(&locks).make(&lock_handles(1), ControlOp::Disable).unwrap();
    let pid = std::process::id();
    // The reserve is told first.
    assert_eq!(std::fs::read_to_string(log).unwrap(), format!("open\nheld {pid}\nlock {pid} 1000\n"));
}

#[test]
fn loading_the_driver_is_tried_again_after_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"read line; echo "$line" >> LOG; test -e LOG.driver && echo ok || echo refused: no driver; cat > /dev/null"#;
    let (locks, log) = locks(folder.path(), script);
    let attempts = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    until("the second attempt", || !locks.load() && attempts() >= 2);
    std::fs::write(log.with_extension("driver"), "").unwrap();
    until("the driver to be loaded", || locks.load());
}

#[test]
fn reserve_ends_with_the_locked_processes_known_if_the_helper_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"echo "$$" >> LOG.pids; while read line; do echo "$line" >> LOG.$$; echo ok; done; echo end >> LOG.$$"#;
    let (locks, log) = locks(folder.path(), script);
    let mut lock = lock_of_this_process(&locks);
    lock.make(&lock_handles(1), ControlOp::Disable).unwrap();
    let pids = std::fs::read_to_string(log.with_extension("pids")).unwrap();
    let [reserve, helper] = [0, 1].map(|nth| pids.lines().nth(nth).unwrap().to_owned());
    let log_of = |pid: &str| std::fs::read_to_string(log.with_extension(pid)).unwrap();
    let pid = std::process::id();
    assert_eq!((log_of(&reserve), log_of(&helper)), (format!("held {pid}\n"), format!("lock {pid} 1000\n")));
    let helper_pid = nix::unistd::Pid::from_raw(helper.parse().unwrap());
    nix::sys::signal::kill(helper_pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    drop((lock, locks));
    until("the end of the reserve", || log_of(&reserve) == format!("held {pid}\nend\n"));
    assert_eq!(log_of(&helper), format!("lock {pid} 1000\n"));
}

#[test]
fn next_helper_is_told_which_processes_are_locked() {
    let folder = tempfile::tempdir().unwrap();
    // The helper answers once, then ends.
    let script = r#"read line; echo "$line" >> LOG; echo ok; read line; case "$line" in held*|unlock*|lock*) echo "$line" >> LOG;; esac
        test -e LOG.second && { echo ok; while read line; do echo "$line" >> LOG; echo ok; done; }; touch LOG.second"#;
    // The reserve is the first to start, and records nothing.
    let script =
        format!("mkdir LOG.reserve 2>/dev/null && {{ while read line; do echo ok; done; exit; }}\n{script}");
    let (locks, log) = locks(folder.path(), &script);
    let (mut lock, handles) = (lock_of_this_process(&locks), lock_handles(1));
    lock.make(&handles, ControlOp::Disable).unwrap();
    assert!(lock.make(&handles, ControlOp::Enable).is_err(), "the helper ended during the command");
    lock.make(&handles, ControlOp::Enable).unwrap();
    let pid = std::process::id();
    let expected = format!("lock {pid} 1000\nunlock {pid}\nheld {pid}\nunlock {pid}\n");
    assert_eq!(std::fs::read_to_string(log).unwrap(), expected);
}

#[test]
fn helper_that_does_not_end_does_not_delay_the_manager() {
    let folder = tempfile::tempdir().unwrap();
    let script = "exec 2>/dev/null; while read line; do echo ok; done; n=0; while test -d LOG.d -a $n -lt 200; do n=$((n+1)); sleep 0.1; done; echo gone > LOG";
    let (locks, log) = locks(folder.path(), script);
    std::fs::create_dir(log.with_extension("d")).unwrap();
    let mut lock = lock_of_this_process(&locks);
    lock.make(&lock_handles(1), ControlOp::Disable).unwrap();
    drop((lock, locks));
    assert!(!log.exists(), "the manager waited for the helper");
    std::fs::remove_dir(log.with_extension("d")).unwrap();
}
