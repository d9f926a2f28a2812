//! Latency-critical processes with different deadlines: the launches of one wait for the work of the other, and never for long.

use sluice_comm::page::grant::URGENT_NOW;
use sluice_preload_tests::recording_manager::{RecordingManager, Understands};
use sluice_preload_tests::{MS, Node, eventually, shared};

/// A program with a kernel of 1 ms and a wait in turn, under a manager that shows the urgent work that the test sets.
fn with_manager(test: impl FnOnce(&Node, &RecordingManager)) {
    let _lock = shared();
    let node = Node::with("1\nlc 0.5 1.0 8589934592\n").without_manager().start();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    manager.set_contenders(true, 1);
    test(&node, &manager);
}

#[test]
fn launches_wait_while_urgent_work_runs_and_none_waits_longer_than_the_bound() {
    with_manager(|node, manager| {
        let mut tenant =
            node.tenant("lc", "busy").arguments("1000 1").environment("SLUICE_HINTS", "off").start();
        tenant.expect("ready");
        node.when_completed(&tenant, 20);
        assert_eq!(manager.postponed(), (false, 0));
        manager.set_urgent(URGENT_NOW);
        // No thread withdraws it, so that each burst waits for the whole bound. The kernels come all the same.
        let before = node.row(&tenant).kernels_completed;
        eventually("a launch is postponed", || manager.postponed().0.then_some(()));
        node.when_completed(&tenant, before + 10);
        let (_, waited) = manager.postponed();
        assert!(waited >= 8 * 5 * MS, "{waited} ns for ten bursts");
        manager.set_urgent(0);
        eventually("no launch is postponed", || (!manager.postponed().0).then_some(()));
        let (_, waited) = manager.postponed();
        let before = node.row(&tenant).kernels_completed;
        node.when_completed(&tenant, before + 20);
        assert_eq!(manager.postponed(), (false, waited));
        tenant.close_input();
        tenant.ending().expect_success();
    });
}

#[test]
fn process_that_is_not_latency_critical_waits_for_no_urgent_work() {
    with_manager(|node, manager| {
        manager.set_contenders(false, 1);
        manager.set_urgent(URGENT_NOW);
        let mut tenant = node.tenant("lc", "busy").arguments("1000 1").start();
        tenant.expect("ready");
        node.when_completed(&tenant, 50);
        assert_eq!(manager.postponed(), (false, 0));
        tenant.close_input();
        tenant.ending().expect_success();
    });
}

#[test]
fn killed_manager_leaves_no_launch_postponed() {
    with_manager(|node, manager| {
        let mut tenant =
            node.tenant("lc", "busy").arguments("1000 1").environment("SLUICE_HINTS", "off").start();
        tenant.expect("ready");
        node.when_completed(&tenant, 20);
        manager.set_urgent(URGENT_NOW);
        eventually("a launch is postponed", || manager.postponed().0.then_some(()));
        manager.hang_up();
        let before = node.row(&tenant).kernels_completed;
        node.when_completed(&tenant, before + 100);
        let waited = manager.postponed();
        node.when_completed(&tenant, before + 200);
        assert_eq!(manager.postponed(), waited);
        tenant.close_input();
        tenant.ending().expect_success();
    });
}

#[test]
fn service_with_the_later_deadline_waits_for_the_other_under_the_real_manager() {
    let _lock = shared();
    let clients = "
clients:
  - { name: first, request: 0.5, memory: 8Gi, class: latency-critical, slo: 2ms }
  - { name: second, request: 0.3, memory: 8Gi, class: latency-critical }
";
    let node = Node::start(clients);
    let start = |client: &str, arguments: &str| {
        let mut tenant = node.tenant(client, "busy").arguments(arguments).start();
        tenant.expect("ready");
        tenant
    };
    let (mut first, mut second) = (start("first", "2000 1 5"), start("second", "1000 1"));
    let postponed = |client: &str| node.metric("sluice_postponed_seconds_total", client);
    eventually("the second service waits", || (postponed("second") > 0.02).then_some(()));
    assert_eq!(postponed("first"), 0.0);
    // Both go on, and the second one waits no more when the first has gone.
    for tenant in [&first, &second] {
        let before = node.row(tenant).kernels_completed;
        node.when_completed(tenant, before + 20);
    }
    first.close_input();
    first.ending().expect_success();
    let before = node.row(&second).kernels_completed;
    node.when_completed(&second, before + 50);
    let waited = postponed("second");
    node.when_completed(&second, before + 100);
    assert_eq!(postponed("second"), waited);
    second.close_input();
    second.ending().expect_success();
}
