//! Announcements of a process's contexts, the controls that they allow, and that no process is left stopped.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_preload_tests::recording_manager::{Announced, How, RecordingManager, Understands};
use sluice_preload_tests::{MS, Node, Tenant, TenantOptions, eventually, shared};

/// A node whose GPU's clock is stepped: what a stopped process completes does not depend on the host.
fn stepped_node() -> Node {
    Node::with("1\nmain 0.5 1.0 8589934592\n").without_manager().stepped().start()
}

fn node() -> Node {
    Node::with("1\nmain 0.5 1.0 8589934592\n").without_manager().start()
}

fn started(options: TenantOptions) -> Tenant {
    let mut tenant = options.start();
    tenant.expect("ready");
    tenant
}

fn command(tenant: &mut Tenant, line: &str, answer: &str) {
    assert_eq!(tenant.ask(line), answer);
}

/// Stops a process on a stepped node. It has stopped when the driver answers: no kernel ends from then on, however long the GPU goes on.
#[track_caller]
fn stop(node: &Node, tenant: &Tenant, announced: &Announced) {
    node.during(|| announced.stop());
    let before = node.row(tenant).kernels_completed;
    node.advance(1_000 * MS);
    node.let_pass(50 * MS);
    assert_eq!(node.row(tenant).kernels_completed, before, "it must stay stopped");
}

fn is_running(node: &Node, tenant: &Tenant) {
    let seen = node.row(tenant).kernels_completed;
    node.when_completed(tenant, seen + 20);
}

#[test]
fn the_compute_group_of_a_context_is_announced_with_its_channels_and_a_control_descriptor() {
    let _lock = shared();
    let node = stepped_node();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    let mut tenant = started(node.tenant("main", "contexts"));
    let announced = manager.announcement(0);
    assert_eq!((announced.how, announced.version), (How::Attach, 3));
    let [context] = announced.contexts.as_slice() else { panic!("{:?}", announced.contexts) };
    assert_eq!((context.descriptor, context.channels.len(), announced.controls.len()), (0, 8, 1));
    command(&mut tenant, "go", "going");
    is_running(&node, &tenant);
    stop(&node, &tenant, &announced);
    node.during(|| announced.start());
    is_running(&node, &tenant);
    tenant.finish().expect_success();
}

#[test]
fn created_and_destroyed_contexts_are_announced_and_nothing_else_is() {
    let _lock = shared();
    let node = node();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    let mut tenant = started(node.tenant("main", "contexts"));
    let first = manager.announcement(0).groups();
    command(&mut tenant, "more", "made");
    let second = manager.announcement(1);
    assert_eq!((second.how, second.contexts.len(), second.controls.len()), (How::Contexts, 2, 1));
    assert_eq!(second.groups()[..1], first[..]);
    command(&mut tenant, "more", "made");
    assert_eq!(manager.announcement(2).contexts.len(), 3);
    command(&mut tenant, "less", "destroyed");
    assert_eq!(manager.announcement(3).groups(), second.groups());
    command(&mut tenant, "less", "destroyed");
    assert_eq!(manager.announcement(4).groups(), first);
    // Work does not change contexts.
    command(&mut tenant, "go", "going");
    is_running(&node, &tenant);
    assert_eq!(manager.announcements(), 5);
    tenant.finish().expect_success();
}

#[test]
fn a_stopped_process_runs_again_with_its_own_slice_when_the_manager_ends() {
    let _lock = shared();
    let node = stepped_node();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    let mut tenant = started(node.tenant("main", "contexts"));
    command(&mut tenant, "more", "made");
    let announced = manager.announcement(1);
    let own = node.during(|| announced.slices());
    command(&mut tenant, "go", "going");
    is_running(&node, &tenant);
    node.during(|| announced.set_slice(1));
    stop(&node, &tenant, &announced);
    manager.hang_up();
    is_running(&node, &tenant);
    eventually("the slices of before", || (node.during(|| announced.slices()) == own).then_some(()));
    // A new manager gets all announcements again.
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    let again = manager.announcement(0);
    assert_eq!((again.how, again.groups()), (How::Attach, announced.groups()));
    stop(&node, &tenant, &again);
    manager.hang_up();
    is_running(&node, &tenant);
    tenant.finish().expect_success();
}

#[test]
fn contexts_are_announced_to_a_manager_without_a_heartbeat() {
    let _lock = shared();
    let node = node();
    let manager = RecordingManager::start(&node.socket(), Understands::SecondVersion);
    let mut tenant = started(node.tenant("main", "contexts"));
    let announced = manager.announcement(0);
    assert_eq!((announced.version, announced.contexts.len(), manager.refused()), (2, 1, 1));
    command(&mut tenant, "more", "made");
    let again = manager.announcement(1);
    assert_eq!((again.how, again.version), (How::Contexts, 2));
    command(&mut tenant, "go", "going");
    is_running(&node, &tenant);
    node.let_pass(500 * MS);
    assert_eq!(manager.ended(), 0, "without a heartbeat the manager is not silent");
    tenant.finish().expect_success();
}

#[test]
fn contexts_are_not_announced_to_a_manager_of_the_first_version() {
    let _lock = shared();
    let node = node();
    let manager = RecordingManager::start(&node.socket(), Understands::FirstVersion);
    let mut tenant = started(node.tenant("main", "contexts"));
    let announced = manager.announcement(0);
    assert_eq!(
        (announced.version, announced.contexts.len(), announced.controls.len(), manager.refused()),
        (1, 0, 0, 2)
    );
    command(&mut tenant, "more", "made");
    command(&mut tenant, "go", "going");
    is_running(&node, &tenant);
    command(&mut tenant, "less", "destroyed");
    is_running(&node, &tenant);
    assert_eq!((manager.ended(), manager.announcements()), (0, 1), "it stays attached as it is");
    tenant.finish().expect_success();
}

#[test]
fn the_connection_ends_with_its_process_even_if_a_child_lives() {
    let _lock = shared();
    let node = node();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    let mut tenant = started(node.tenant("main", "contexts"));
    assert_eq!(manager.announcement(0).contexts.len(), 1);
    let child = Pid::from_raw(tenant.ask("child").parse().unwrap());
    assert_eq!(manager.ended(), 0);
    tenant.signal(Signal::SIGKILL);
    eventually("the end of the connection", || (manager.ended() == 1).then_some(()));
    assert_eq!(kill(child, None), Ok(()), "the child lives");
    kill(child, Signal::SIGKILL).unwrap();
}

/// A stopped process closes descriptors of the hook (`close`): it runs again and attaches again. `then` is called before its end.
#[track_caller]
fn check_restart_after(close: &str, closed: &str, then: impl FnOnce(&RecordingManager)) {
    let _lock = shared();
    let node = stepped_node();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    let mut tenant = started(node.tenant("main", "contexts"));
    let announced = manager.announcement(0);
    command(&mut tenant, "go", "going");
    is_running(&node, &tenant);
    stop(&node, &tenant, &announced);
    command(&mut tenant, close, closed);
    is_running(&node, &tenant);
    let again = manager.announcement(1);
    assert_eq!((again.how, again.groups()), (How::Attach, announced.groups()));
    then(&manager);
    tenant.finish().expect_success();
}

#[test]
fn a_process_that_closes_the_hooks_descriptors_is_enabled_again_and_attaches_again() {
    check_restart_after("close", "closed", |_| {});
}

#[test]
fn a_process_that_closes_the_guards_copy_of_the_connection_is_enabled_again_and_attaches_again() {
    // Without the guard's copy a process could stay stopped for ever.
    check_restart_after("copies", "closed 1", RecordingManager::hang_up);
}

#[test]
fn the_hook_never_writes_to_files_that_reuse_its_descriptor_numbers() {
    let _lock = shared();
    let node = node();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    let mut tenant = started(node.tenant("main", "contexts"));
    let announced = manager.announcement(0);
    command(&mut tenant, "alloc", "allocated");
    // Both connections, and the guard's copy of one of them.
    command(&mut tenant, "reuse", "reused 3");
    command(&mut tenant, "alloc", "allocated");
    command(&mut tenant, "more", "made");
    let again = manager.announcement(1);
    assert_eq!((again.how, again.groups()[0]), (How::Attach, announced.groups()[0]));
    assert_eq!(tenant.ask("foreign"), "foreign 0");
    tenant.finish().expect_success();
}

#[test]
fn a_stopped_process_reports_work_that_is_no_launch() {
    let _lock = shared();
    let node = node();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    let mut tenant = started(node.tenant("main", "contexts"));
    let announced = manager.announcement(0);
    let idle = || eventually("the tenant to be idle", || (!manager.is_busy()).then_some(()));
    for (request, answer) in [("set", "set"), ("copy", "copied")] {
        idle();
        announced.stop();
        command(&mut tenant, request, answer);
        assert!(manager.is_busy(), "{request} is work");
        assert_eq!(tenant.ask("query"), "query 600");
        assert!(manager.is_busy());
        announced.start();
    }
    idle();
    tenant.finish().expect_success();
}
