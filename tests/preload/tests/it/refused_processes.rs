//! What becomes of a process that the manager refuses because its client has too many.

use sluice_preload_tests::{MS, Node, Tenant, eventually, shared};

/// A manager with room for one process of the client, which works.
fn full_node() -> (Node, Tenant) {
    let node = Node::with("1\nmain 0.5 1.0 8589934592\n").manager_arguments("--max-connections 4").start();
    let first = start(&node, "open");
    node.when_completed(&first, 16);
    (node, first)
}

fn start(node: &Node, on_loss: &str) -> Tenant {
    let options = node.tenant("main", "busy").arguments("1000 8");
    let mut tenant = options.environment("SLUICE_ON_MANAGER_LOSS", on_loss).start();
    tenant.expect("ready");
    tenant
}

/// It counts as a process that is not admitted. docs/design/identity.md states what that means for the others.
#[test]
fn process_beyond_the_limit_of_its_client_runs_without_grants_under_open_until_there_is_room() {
    let _lock = shared();
    let (node, first) = full_node();
    let refused = start(&node, "open");
    node.when_completed(&refused, 200);
    assert_eq!(node.metric("sluice_processes", "main"), 1.0);
    let grants = node.metric("sluice_grants_total", "main");
    first.finish().expect_success();
    eventually("grants of the process that was refused", || {
        (node.metric("sluice_grants_total", "main") > grants + 2.0).then_some(())
    });
    refused.finish().expect_success();
}

#[test]
fn process_beyond_the_limit_of_its_client_waits_under_closed_until_there_is_room() {
    let _lock = shared();
    let (node, first) = full_node();
    let options = node.tenant("main", "tenant").environment("SLUICE_ON_MANAGER_LOSS", "closed");
    let mut refused = options.start();
    refused.expect("ready");
    refused.send("spin 1 1000");
    node.let_pass(500 * MS);
    assert_eq!(node.row(&refused).kernels_submitted, 0, "it launched without a grant");
    first.finish().expect_success();
    assert_eq!(refused.line(), "launched");
    refused.finish().expect_success();
}
