//! Programs without the hook that were left stopped, released by `sluice release`, measured by the simulated GPU's ledger.

use sluice_preload_tests::artifacts::built;
use sluice_preload_tests::eventually;
use sluice_preload_tests::machine_lock::shared;
use sluice_preload_tests::node::Node;
use sluice_preload_tests::pod_bed::PodBed;
use sluice_preload_tests::waiting::TIMEOUT;
use sluice_preload_tests::{MS, Tenant};
use sluice_proto::control::Class::BestEffort;
use sluice_test_bed::{Output, Process};
use std::process::Command;
use std::time::Instant;

/// `sluice` beside the node's simulated driver.
fn sluice(node: &Node, arguments: &[&str]) -> Command {
    let mut command = Command::new(&built().sluice);
    command
        .args(arguments)
        .env("SLUICE_SIM_SOCKET", node.simulator())
        .env("LD_LIBRARY_PATH", &built().driver)
        .env_remove("LD_PRELOAD");
    command
}

/// Runs `sluice release`. Returns whether it succeeded, and its output.
fn release(node: &Node, arguments: &[&str]) -> (bool, String) {
    let output = sluice(node, &[&["release"], arguments].concat()).output();
    let output = output.unwrap_or_else(|error| panic!("running release: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Whether all groups of the program are enabled.
fn is_enabled(node: &Node, tenant: &Tenant) -> bool {
    node.ledger().groups.iter().filter(|group| group.pid == tenant.pid()).all(|group| group.is_enabled)
}

#[test]
fn program_that_a_killed_lock_helper_left_locked_is_released() {
    let _lock = shared();
    let node = Node::with("").without_manager().start();
    let mut program = node.tenant("program", "busy").without_hook().arguments("1000 8").start();
    program.expect("ready");
    node.when_completed(&program, 16);
    let helper = Process::start("lock-helper", sluice(&node, &["lock-helper"]), node.path(), Output::Lines);
    let mut helper = helper.unwrap_or_else(|error| panic!("{error:#}"));
    let asked = helper.send_line(&format!("lock {} 5000", program.pid()));
    asked.unwrap_or_else(|error| panic!("{error:#}"));
    let answer = helper.next_line(Instant::now() + TIMEOUT);
    assert_eq!(answer.unwrap_or_else(|error| panic!("{error:?}: {}", helper.log())), "ok");
    helper.kill();
    let before = node.row(&program).kernels_completed;
    node.let_pass(300 * MS);
    assert_eq!(node.row(&program).kernels_completed, before, "it was not left locked");
    let (released, text) = release(&node, &["--pid", &program.pid().to_string()]);
    assert!(released && text.contains("released"), "{text}");
    node.when_completed(&program, before + 100);
    program.finish().expect_success();
}

#[test]
fn program_that_a_killed_manager_left_disabled_is_released() {
    let _lock = shared();
    let Some(mut bed) = PodBed::start(&[(1, BestEffort, 30), (2, BestEffort, 70)], "") else { return };
    let busy = |n| {
        let mut tenant = bed.tenant(n, "busy").without_hook().arguments("2000 50").start();
        tenant.expect("ready");
        tenant
    };
    let tenants = [busy(1), busy(2)];
    // A manager that is killed during a hand-off may leave both enabled. Then the next manager is killed.
    let stopped = loop {
        bed.when_scheduled_without_hook(1, 1.0);
        bed.when_scheduled_without_hook(2, 1.0);
        eventually("one of them to stop", || {
            tenants.iter().any(|one| !is_enabled(&bed.node, one)).then_some(())
        });
        bed.kill_manager();
        match tenants.iter().find(|one| !is_enabled(&bed.node, one)) {
            Some(stopped) => break stopped,
            None => bed.start_manager(),
        }
    };
    let (released, text) = release(&bed.node, &["--simulated", "--pid", &stopped.pid().to_string()]);
    assert!(released && is_enabled(&bed.node, stopped), "{text}");
    for tenant in tenants {
        tenant.finish().expect_success();
    }
}

#[test]
fn process_without_a_gpu_is_reported() {
    let _lock = shared();
    let node = Node::with("").without_manager().start();
    let (released, text) = release(&node, &["--pid", &std::process::id().to_string()]);
    assert!(!released && text.contains("no descriptor of the NVIDIA control device"), "{text}");
}
