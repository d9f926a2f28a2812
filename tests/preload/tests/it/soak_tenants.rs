//! The tenants of `sluice-dev soak`.

use sluice_preload_tests::artifacts::built;
use sluice_preload_tests::machine_lock::shared;
use sluice_preload_tests::node::Node;
use sluice_preload_tests::waiting::TIMEOUT;
use sluice_test_bed::{Output, Process};
use std::time::Instant;

/// The processes of a client have more memory than its limit after a stop of the manager, during which each of them has the whole limit.
/// They are quiet and keep their memory until a short child of theirs has ended, so the child must not wait for it.
#[test]
fn short_child_of_a_client_without_memory_ends() {
    let _machine = shared();
    // A thread's buffer is larger.
    let node = Node::start("clients:\n  - { name: full, request: 0.1, memory: 4Ki }\n");
    let artifacts = built();
    let mut command = Process::command(&artifacts.sluice_dev);
    command
        .args(["soak-tenant", "--threads", "2", "--calls", "12", "--seed", "1"])
        .env("LD_PRELOAD", &artifacts.hook)
        .env("LD_LIBRARY_PATH", &artifacts.driver)
        .env("SLUICE_SIM_SOCKET", node.simulator())
        .env("SLUICE_SOCKET", node.socket())
        .env("SLUICE_CLIENT", "full");
    let mut child = Process::start("child", command, node.path(), Output::Log).unwrap();
    let status = child.wait(Instant::now() + TIMEOUT).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{status:?}{}", child.log());
}
