//! What becomes of a process for which the manager has no room, under both policies for a lost manager.

use std::path::Path;
use std::process::Command;

use sluice_preload_tests::{Node, Tenant, shared};

/// A manager with room for one process of the client, which works.
fn full_node() -> (Node, Tenant) {
    let node = Node::with("1\nmain 0.5 1.0 8589934592\n").manager_arguments("--max-connections 4").start();
    let first = busy(&node);
    (node, first)
}

fn busy(node: &Node) -> Tenant {
    let mut tenant = node.tenant("main", "busy").arguments("1000 8").start();
    tenant.expect("ready");
    node.when_completed(&tenant, 16);
    tenant
}

fn spinning(node: &Node, client: &str, on_loss: &str) -> Tenant {
    let options = node.tenant(client, "tenant").environment("SLUICE_ON_MANAGER_LOSS", on_loss);
    let mut tenant = options.start();
    tenant.expect("ready");
    tenant.send("spin 1 1000");
    tenant
}

/// Without grants it would have more than its share, and more than the process that was admitted.
fn check_process_beyond_the_limit_of_its_client(on_loss: &str) {
    let _lock = shared();
    let (node, first) = full_node();
    let mut second = spinning(&node, "main", on_loss);
    let done = node.row(&first).kernels_completed;
    node.when_completed(&first, done + 100);
    assert_eq!(node.row(&second).kernels_submitted, 0, "it launched without a grant");
    first.finish().expect_success();
    assert_eq!(second.line(), "launched");
    second.finish().expect_success();
}

#[test]
fn process_beyond_the_limit_of_its_client_waits_under_open_until_there_is_room() {
    check_process_beyond_the_limit_of_its_client("open");
}

#[test]
fn process_beyond_the_limit_of_its_client_waits_under_closed_until_there_is_room() {
    check_process_beyond_the_limit_of_its_client("closed");
}

/// Leaves the manager no descriptor but those that it has.
fn exhaust_descriptors(node: &Node) {
    let pid = node.manager_pid();
    let is_free = |number: &i32| !Path::new(&format!("/proc/{pid}/fd/{number}")).exists();
    let lowest = (0..).find(is_free).expect("a free number");
    set_descriptor_limit(node, lowest);
}

fn set_descriptor_limit(node: &Node, limit: i32) {
    let mut command = Command::new("prlimit");
    command.args([format!("--pid={}", node.manager_pid()), format!("--nofile={limit}:4096")]);
    assert!(command.status().expect("prlimit").success());
}

#[test]
fn process_for_which_the_manager_has_no_descriptor_has_no_more_than_an_attached_one() {
    let _lock = shared();
    let node = Node::start("2\nmain 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n");
    let first = busy(&node);
    exhaust_descriptors(&node);
    let mut second = node.tenant("other", "tenant").start();
    second.expect("ready");
    for _ in 0..100 {
        assert_eq!(second.ask("take alloc 4096"), "refused 2");
    }
    let lines = node.manager_log().matches("out of descriptors").count();
    assert!((1..50).contains(&lines), "{lines} log lines");
    second.send("spin 1 1000");
    let done = node.row(&first).kernels_completed;
    node.when_completed(&first, done + 100);
    assert_eq!(node.row(&second).kernels_submitted, 0, "it launched without a grant");
    set_descriptor_limit(&node, 1024);
    assert_eq!(second.line(), "launched");
    assert_eq!(second.ask("take alloc 4096"), "took 0");
    second.finish().expect_success();
    first.finish().expect_success();
}
