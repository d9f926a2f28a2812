//! Processes that cannot be controlled by channel groups: the driver's lock.

use super::harness::Harness;
use crate::support::agent::{pod, uid};
use crate::support::group_processes::quiet;
use crate::support::{MS, until};
use sluice_pod_manager::ViolationPolicy;
use sluice_pod_manager::unhooked::scanning::ObstacleKind;
use std::cell::Cell;
use std::path::{Path, PathBuf};

fn write_program(program: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(program, script).unwrap();
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A lock helper that records its commands and its end in a log.
fn lock_helper(folder: &Path) -> (PathBuf, PathBuf) {
    let (program, log) = (folder.join("helper"), folder.join("helper.log"));
    let to = log.display();
    let read = format!("while read line; do echo \"$line\" >> {to}; echo ok; done");
    let script = format!("#!/bin/sh\necho \"$@\" >> {to}\n{read}\necho end >> {to}\n");
    write_program(&program, &script);
    (program, log)
}

#[test]
fn process_that_cannot_be_controlled_by_groups_is_stopped_by_the_drivers_lock() {
    let folder = tempfile::tempdir().unwrap();
    let (program, log) = lock_helper(folder.path());
    let log = || std::fs::read_to_string(&log).unwrap_or_default();
    let mut node = Harness::with_locks(&[pod(&uid(1)), pod(&uid(2))], Some(program));
    let (_hook, _descriptor) = node.hooked(2, 2);
    node.discovery.add_uncontrollable(500, &uid(1), ObstacleKind::TooMany);
    node.discovery.add_uncontrollable(501, &uid(1), ObstacleKind::NoGroups);
    until("it is locked", || {
        node.scan();
        log().contains("lock 500 1000")
    });
    let uncontrolled = ["too_many", "no_groups"].map(|why| node.uncontrolled(1, why));
    assert_eq!((node.unhooked(1), uncontrolled), (1.0, [0.0, 1.0]));
    until("it is locked and unlocked by quanta", || {
        node.world.advance(10 * MS);
        quiet(&node.world);
        let log = log();
        log.matches("\nunlock 500").count() > 3 && log.matches("\nlock 500").count() > 3
    });
    let [_, hooked] = node.enabled_ms([1, 2]);
    assert!((4500..=5500).contains(&hooked), "{hooked} ms");
    node.world.stop();
    until("the lock helper ends", || log().ends_with("end\n"));
    let log = log();
    assert!(log.starts_with("lock-helper\n") && !log.contains("501"), "{log}");
    node.world.start();
}

/// Loading the driver initialises each GPU of the node.
#[test]
fn lock_helper_is_not_started_while_each_process_can_be_controlled() {
    let folder = tempfile::tempdir().unwrap();
    let (program, log) = lock_helper(folder.path());
    let node = Harness::with_locks(&[pod(&uid(1))], Some(program));
    let (_hook, _descriptor) = node.hooked(1, 1);
    node.discovery.add_uncontrollable(501, &uid(1), ObstacleKind::NoGroups);
    until("both were inspected", || {
        node.scan();
        node.uncontrolled(1, "no_groups") == 1.0
    });
    // What starts the helper is a thread of its own: the next searches give it time.
    (0..8).for_each(|_| node.scan());
    assert!(!log.exists(), "{}", std::fs::read_to_string(&log).unwrap_or_default());
}

/// The helper loads the driver when it is needed for the first time.
#[test]
fn attached_process_with_too_many_descriptors_is_locked_as_soon_as_the_helper_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let (program, log) = lock_helper(folder.path());
    let node = Harness::with_locks(&[pod(&uid(1)), pod(&uid(2))], Some(program));
    let (hook, _descriptor) = node.hooked(1, 1);
    let (_other, _its) = node.hooked(2, 2);
    node.discovery.add_uncontrollable(hook.process.pid, &uid(1), ObstacleKind::TooMany);
    until("it is locked", || {
        node.pass(100);
        std::fs::read_to_string(&log)
            .is_ok_and(|log| log.contains(&format!("lock {} 1000", hook.process.pid)))
    });
    assert_eq!(node.violations(1, "too_many_descriptors"), 1.0);
}

/// The inspection that begins the loading comes too early, and the next one is seconds later.
#[test]
fn process_with_too_many_groups_is_locked_by_the_first_inspection_after_the_helper_has_loaded_the_driver() {
    let folder = tempfile::tempdir().unwrap();
    let (program, log) = (folder.path().join("helper"), folder.path().join("helper.log"));
    let to = log.display();
    let script = format!(
        "#!/bin/sh\nread line\nwhile test ! -e {to}.go; do sleep 0.01; done\necho ok\necho loaded > {to}\n\
         while read line; do echo ok; done\n"
    );
    write_program(&program, &script);
    let node = Harness::with_locks(&[pod(&uid(1)), pod(&uid(2))], Some(program));
    let (_hook, _descriptor) = node.hooked(2, 2);
    let _many = node.discovery.add_process(500, &uid(1), &(100..200).collect::<Vec<_>>());
    until("it is not scheduled", || {
        node.pass(100);
        node.uncontrolled(1, "too_many") == 1.0
    });
    std::fs::write(log.with_extension("log.go"), "").unwrap();
    until("the helper has loaded the driver", || log.exists());
    node.discovery.take_inspected();
    let inspections = Cell::new(0);
    until("it is locked", || {
        node.pass(100);
        inspections.set(inspections.get() + node.discovery.take_inspected().len());
        node.unhooked(1) == 1.0
    });
    assert_eq!(inspections.get(), 1);
}

/// Its threads may stand under ptrace, so that the lock would wait for them.
#[test]
fn stopped_process_is_not_locked() {
    let folder = tempfile::tempdir().unwrap();
    let (program, log) = lock_helper(folder.path());
    let log = || std::fs::read_to_string(&log).unwrap_or_default();
    let node = Harness::with_config(&[pod(&uid(1)), pod(&uid(2))], |config| {
        config.lock_program = Some(program);
        config.violation_policy = ViolationPolicy::Stop;
    });
    let (hook, _descriptor) = node.hooked(1, 1);
    let (_other, _its) = node.hooked(2, 2);
    let _same = node.discovery.add_process(hook.process.pid, &uid(1), &[1]);
    // It starts the helper.
    node.discovery.add_uncontrollable(500, &uid(2), ObstacleKind::TooMany);
    let pass = |ms: u64| {
        for _ in 0..ms / 10 {
            node.world.clock.advance(10 * MS);
            quiet(&node.world);
        }
    };
    until("the lock can be used", || {
        pass(100);
        log().contains("lock 500 1000")
    });
    node.world.driver.run_while_disabled(1);
    until("the process is stopped", || {
        pass(100);
        node.metric("sluice_stopped_processes", 1, "") == 1.0
    });
    let pid = hook.process.pid;
    drop(hook);
    node.discovery.open_descriptor(pid);
    node.discovery.set_uncontrollable(pid, ObstacleKind::TooMany);
    pass(5000);
    assert!(!node.group(1).0);
    assert!(!log().contains(&format!("lock {pid}")), "{}", log());
}
