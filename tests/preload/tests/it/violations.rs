//! What follows from violations: a program that enables its disabled channels again and again is stopped.

use nix::sys::signal::Signal;
use sluice_preload_tests::{MS, Node, checks, eventually, exclusive, tenant};

const SECOND: u64 = 1_000 * MS;

/// The manager's log of the first stop.
const STOPPED: &str = "the process is stopped for 10 s";

#[test]
fn program_that_enables_its_channels_is_stopped_and_the_others_have_their_shares_again() {
    // How often the program enables its channels, and the checks, follow the real clock.
    let _lock = exclusive();
    let clients = "clients:\n  - { name: limited, request: 0.3, limit: 0.5, memory: 2Gi }\n  - { name: other, request: 0.7, memory: 1Gi }\n";
    let node = Node::with(clients).manager_arguments("--controls simulated").start();
    // An honest process of the same client, and another client.
    let tenants = tenant::busy(&node, &["limited", "other"], "2000 50");
    let mut violator = node.tenant("limited", "own_ioctls").arguments("enable").start();
    violator.expect("attempt");
    node.expect_violation("stopped_group_ran");
    // The first finding is only reported, and so is a second one within 0.2 s: it counts as the same check. Later ones are 0.5 s apart.
    let lines = eventually("the process to be stopped, or six findings", || {
        let log = node.manager_log();
        let is_finding = |line: &&str| line.contains("violation: ") && line.contains("stopped_group_ran");
        let findings: Vec<String> = log.lines().filter(is_finding).map(str::to_owned).collect();
        (findings.len() >= 6 || findings.iter().any(|line| line.contains(STOPPED))).then_some(findings)
    });
    let violator_pid = format!("pid={}", violator.pid());
    let is_stop = |line: &String| line.contains(STOPPED) && line.contains(&violator_pid);
    assert!(lines.iter().any(is_stop), "{lines:#?}");
    assert_eq!(node.metric("sluice_stopped_processes", "limited"), 1.0);
    node.let_pass(SECOND);
    // Two spans, if the host takes time in the first one, end before the stop does.
    let measured = node.undisturbed(3 * SECOND);
    let window = node.window(measured.span);
    assert_eq!(window.share_of_time(violator.pid()), 0.0);
    let pids = [tenants[0].pid(), tenants[1].pid()];
    checks::shares(&window, &[(&[pids[0]], 0.3), (&[pids[1]], 0.7)], 0.6, measured.taken).unwrap();
    // It is not killed, runs again, and goes on.
    node.logged(&["the stopped process is released"]);
    node.logged(&["violation: ", "the process is stopped for 20 s"]);
    violator.signal(Signal::SIGKILL);
    assert_eq!(violator.ending().signal(), Some(9));
    tenant::end(tenants);
}
