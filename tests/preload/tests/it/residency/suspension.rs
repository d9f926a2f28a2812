//! Programs whose client is suspended: their memory leaves, others run meanwhile, and no byte is lost.

use super::*;

/// A node with two programs of 0.7, of which one is suspended once it has its memory.
fn with_suspended(arguments: &str) -> (Node, Tenant, String) {
    let clients = format!("clients:\n{}", two(", overcommit: true"));
    let node = overcommitted(&two(", overcommit: true"), arguments).start();
    let mut first = with_memory(&node, "first", LARGE);
    first.send("run 2000");
    suspend(&node, &clients, true);
    (node, first, clients)
}

/// Suspends the first client, or resumes it, and returns when that is done.
pub(super) fn suspend(node: &Node, clients: &str, suspended: bool) {
    let text = if suspended {
        clients.replace("name: first,", "name: first, suspended: true,")
    } else {
        clients.to_owned()
    };
    node.write_resources(&text);
    until_suspended(node, suspended);
}

fn until_suspended(node: &Node, suspended: bool) {
    let resident = if suspended { 0 } else { LARGE };
    eventually(&format!("the first client to be suspended: {suspended}"), || {
        let is_suspended = node.metric("sluice_client_suspended", "first") == f64::from(u8::from(suspended));
        (is_suspended && on_gpu(node, "first") == resident).then_some(())
    });
}

fn second_runs_alone_while_the_first_is_suspended(arguments: &str) {
    let (node, mut first, clients) = with_suspended(arguments);
    let mut second = with_memory(&node, "second", LARGE);
    let moved = || ["first", "second"].map(|client| node.metric("sluice_memory_moved_bytes_total", client));
    let before = moved();
    assert!(steps(&second.ask("run 1500")).0 > 0);
    assert_eq!((moved(), on_gpu(&node, "first")), (before, 0));
    assert_eq!(second.ask("verify"), "right");
    second.finish().expect_success();
    suspend(&node, &clients, false);
    assert!(steps(&first.line()).0 > 0);
    assert_eq!(first.ask("verify"), "right");
    first.finish().expect_success();
    eventually("all memory of the GPU to be free", || (node.ledger().gpu.memory_used == 0).then_some(()));
}

#[test]
fn memory_of_a_suspended_program_leaves_and_another_one_runs_alone_without_moves() {
    let _lock = shared();
    second_runs_alone_while_the_first_is_suspended("--controls off");
}

#[test]
fn memory_of_a_suspended_program_leaves_where_channel_groups_are_scheduled() {
    let _lock = shared();
    second_runs_alone_while_the_first_is_suspended("--controls simulated");
}

fn suspension_survives_the_manager(arguments: &str) {
    let (mut node, mut first, clients) = with_suspended(arguments);
    // Longer and shorter than the time after which the memory returns by itself.
    for without_manager in [Duration::from_millis(100), Duration::from_millis(1_200)] {
        node.kill_manager();
        std::thread::sleep(without_manager);
        node.start_manager();
        until_suspended(&node, true);
    }
    suspend(&node, &clients, false);
    assert!(steps(&first.line()).0 > 0);
    assert_eq!(first.ask("verify"), "right");
    first.finish().expect_success();
}

#[test]
fn client_is_suspended_still_after_its_manager_was_killed() {
    let _lock = shared();
    suspension_survives_the_manager("--controls off");
}

#[test]
fn client_whose_channel_groups_are_scheduled_is_suspended_still_after_its_manager_was_killed() {
    let _lock = shared();
    suspension_survives_the_manager("--controls simulated");
}

#[test]
fn process_killed_while_it_is_suspended_leaves_no_memory_anywhere() {
    let _lock = shared();
    let clients = format!("clients:\n{}", two(", overcommit: true"));
    // The host has room for one of the programs.
    let node = with_host_memory(LARGE, &two(", overcommit: true"), "--controls off").start();
    let mut first = with_memory(&node, "first", LARGE);
    suspend(&node, &clients, true);
    let mut second = node.tenant("second", "movable").start();
    second.expect("ready");
    assert_eq!(second.ask(&format!("take {BLOCK}")), REFUSED);
    first.signal(Signal::SIGKILL);
    first.ending();
    eventually("the host memory to be free", || {
        (second.ask(&format!("take {BLOCK}")) == "took 0").then_some(())
    });
    assert_eq!(node.metric("sluice_memory_used_bytes", "first"), 0.0);
    assert_eq!(second.ask("verify"), "right");
    second.finish().expect_success();
    eventually("all memory of the GPU to be free", || (node.ledger().gpu.memory_used == 0).then_some(()));
}

#[test]
fn allocation_of_a_suspended_client_waits_until_it_is_resumed() {
    let _lock = shared();
    let clients = format!("clients:\n{}", two(", overcommit: true"));
    let node = overcommitted(&two(", overcommit: true"), "--controls off").start();
    let mut first = with_memory(&node, "first", BLOCK);
    node.write_resources(&clients.replace("name: first,", "name: first, suspended: true,"));
    eventually("its memory to leave", || (on_gpu(&node, "first") == 0).then_some(()));
    first.send(&format!("take {BLOCK}"));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(on_gpu(&node, "first"), 0);
    node.write_resources(&clients);
    assert_eq!(first.line(), "took 1");
    assert_eq!(first.ask("verify"), "right");
    first.finish().expect_success();
}

#[test]
fn client_without_overcommitment_keeps_its_memory_and_gets_no_time_while_it_is_suspended() {
    let _lock = shared();
    let clients = format!("clients:\n{}", two(""));
    let node = node(&two("")).manager_arguments("--controls off").start();
    let mut first = with_memory(&node, "first", BLOCK);
    node.write_resources(&clients.replace("name: first,", "name: first, suspended: true,"));
    eventually("it to be suspended", || {
        (node.metric("sluice_client_suspended", "first") == 1.0).then_some(())
    });
    node.logged(&["client is suspended", "first", &format!("bytes_on_gpu={BLOCK}")]);
    // Its grant ends.
    std::thread::sleep(Duration::from_millis(300));
    let used = || node.metric("sluice_gpu_seconds_total", "first");
    let before = used();
    first.send("run 500");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((used(), on_gpu(&node, "first")), (before, BLOCK));
    node.write_resources(&clients);
    assert!(steps(&first.line()).0 > 0);
    first.finish().expect_success();
}
