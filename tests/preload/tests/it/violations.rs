//! What follows from violations: a program that enables its disabled channels again and again is stopped.

use nix::sys::signal::Signal;
use sluice_preload_tests::{MS, Node, checks, exclusive, tenant};

const SECOND: u64 = 1_000 * MS;

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
    let line = node.logged(&["violation: ", "stopped_group_ran"]);
    let is_stopped = line.contains("the process is stopped for 10 s");
    assert!(is_stopped && line.contains(&format!("pid={}", violator.pid())), "{line}");
    assert_eq!(node.metric("sluice_stopped_processes", "limited"), 1.0);
    node.let_pass(SECOND);
    let measured = node.undisturbed(5 * SECOND);
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
