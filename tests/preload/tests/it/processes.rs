//! Processes under the hook: threads, fork, exec, and every kind of end.

use nix::sys::signal::Signal;
use sluice_preload_tests::recording_manager::{RecordingManager, Understands};
use sluice_preload_tests::{Node, Tenant, eventually, exclusive, shared};
use std::fs;

const ONE: &str = "1\nmain 0.5 1.0 8589934592\n";
const TWO: &str = "2\nmain 0.5 1.0 8589934592\nhog 0.5 1.0 8589934592\n";

/// A node whose manager waits a minute for a grant to be returned.
fn node_with_long_return_timeout() -> Node {
    Node::with(TWO).manager_arguments("--return-timeout-ms 60000").start()
}

/// A tenant of client "hog" that holds the token and cannot return it while it lives.
fn hog(node: &Node) -> Tenant {
    let mut hog = node.tenant("hog", "tenant").start();
    hog.expect("ready");
    assert_eq!(hog.ask("launch 1 600000000"), "launched");
    hog
}

/// Waits until all threads of a tenant sleep, `own` of its own and the hook's tracker, and nothing has been launched.
fn when_waiting(node: &Node, tenant: &Tenant, own: usize) {
    eventually("a thread that waits for a token", || {
        let threads = fs::read_dir(format!("/proc/{}/task", tenant.pid())).ok()?;
        let sleeping = threads.flatten().filter(|thread| {
            fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| stat.contains(") S "))
        });
        (sleeping.count() > own && node.row(tenant).kernels_submitted == 0).then_some(())
    });
}

#[test]
fn a_thousand_threads_launch_and_every_kernel_runs_exactly_once() {
    // So many threads would delay the tests beside them.
    let _lock = exclusive();
    let node = Node::start(ONE);
    let mut tenant = node.tenant("main", "threads").arguments("1000 40").start();
    tenant.expect("40000");
    tenant.ending().expect_success();
    assert_eq!(node.row(&tenant).kernels["mix"], 40_000);
}

#[test]
fn a_thousand_threads_launch_beside_another_client() {
    // So many threads would delay the tests beside them.
    let _lock = exclusive();
    let node = Node::start(TWO);
    let mut other = node.tenant("hog", "busy").arguments("500 4").start();
    other.expect("ready");
    let mut tenant = node.tenant("main", "threads").arguments("1000 10").start();
    tenant.expect("10000");
    tenant.ending().expect_success();
    other.finish().expect_success();
}

#[test]
fn a_fault_on_a_hook_thread_reaches_the_programs_handler_and_other_signals_reach_its_threads() {
    let _lock = shared();
    let node = Node::start(ONE);
    let mut tenant = node.tenant("main", "faults").start();
    let threads: usize = tenant.line().parse().unwrap();
    tenant.ending().expect_success();
    assert!(threads >= 1, "{threads} threads of the hook");
}

#[test]
fn a_forked_child_initialises_cuda_if_its_parent_did_not() {
    let _lock = shared();
    let node = Node::start(ONE);
    let tenant = node.tenant("main", "forks").arguments("fresh").start();
    tenant.finish().expect_success();
    let ledger = node.ledger();
    let completed: Vec<u64> = ledger.processes.iter().map(|row| row.kernels_completed).collect();
    assert_eq!(completed, [10, 10], "parent and child, each governed on its own");
    assert!(node.metric("sluice_grants_total", "main") >= 2.0);
}

#[test]
fn children_of_a_cuda_process_neither_hang_nor_disturb_it() {
    let _lock = shared();
    let node = Node::start(TWO);
    // The rival makes grants expire, so that forks happen at every stage of a grant.
    let mut rival = node.tenant("hog", "busy").arguments("500 4").start();
    rival.expect("ready");
    node.tenant("main", "forks").arguments("used").start().finish().expect_success();
    rival.finish().expect_success();
}

#[test]
fn exec_starts_the_hook_again() {
    let _lock = shared();
    let node = Node::start(ONE);
    let mut tenant = node.tenant("main", "execs").start();
    tenant.expect("again");
    tenant.ending().expect_success();
    eventually("the memory of both images", || {
        (node.metric("sluice_memory_used_bytes", "main") == 0.0).then_some(())
    });
}

#[test]
fn every_way_of_ending_ends_with_work_in_flight_and_nothing_destroyed() {
    let _lock = shared();
    let node = Node::start(ONE);
    for how in ["return", "exit", "quick", "thread", "detach"] {
        let ending = node.tenant("main", "exits").arguments(how).start().finish();
        assert_eq!(ending.code(), Some(0), "{how}: {}", ending.errors);
    }
    let ending = node.tenant("main", "exits").arguments("abort").start().finish();
    assert_eq!(ending.signal(), Some(Signal::SIGABRT as i32), "{}", ending.errors);
    // No token or memory is left.
    eventually("all memory", || (node.metric("sluice_memory_used_bytes", "main") == 0.0).then_some(()));
    let mut next = node.tenant("main", "launches").arguments("kernel 10").start();
    next.expect("10");
}

#[test]
fn every_way_of_ending_ends_while_a_thread_waits_for_a_token() {
    let _lock = shared();
    let node = node_with_long_return_timeout();
    let hog = hog(&node);
    for how in ["return", "exit", "quick", "thread", "detach", "abort"] {
        let mut tenant = node.tenant("main", "exits").arguments(how).arguments("wait").start();
        tenant.expect("waiting");
        when_waiting(&node, &tenant, 2);
        let ending = tenant.finish();
        let expected = if how == "abort" { (None, Some(6)) } else { (Some(0), None) };
        assert_eq!((ending.code(), ending.signal()), expected, "{how}: {}", ending.errors);
    }
    // The requests of ended processes are forgotten: the token goes to a running process.
    hog.signal(Signal::SIGKILL);
    let mut next = node.tenant("main", "launches").arguments("kernel 10").start();
    next.expect("10");
}

#[test]
fn a_thread_that_waits_for_a_token_does_not_keep_another_from_allocating() {
    let _lock = shared();
    let node = node_with_long_return_timeout();
    let hog = hog(&node);
    let mut tenant = node.tenant("main", "patient").start();
    tenant.expect("waiting");
    hog.signal(Signal::SIGKILL);
    tenant.send("");
    tenant.expect("launched");
    tenant.ending().expect_success();
}

#[test]
fn a_thread_cancelled_during_a_token_wait_does_not_end_the_process() {
    let _lock = shared();
    let node = node_with_long_return_timeout();
    let _hog = hog(&node);
    let mut tenant = node.tenant("main", "patient").arguments("cancel").start();
    tenant.expect("waiting");
    tenant.expect("cancelled");
    tenant.ending().expect_success();
}

#[test]
fn a_signal_ends_a_tenant_that_waits_for_a_token() {
    let _lock = shared();
    let node = node_with_long_return_timeout();
    let _hog = hog(&node);
    let mut tenant = node.tenant("main", "tenant").start();
    tenant.expect("ready");
    tenant.send("launch 1 100");
    when_waiting(&node, &tenant, 1);
    tenant.signal(Signal::SIGTERM);
    assert_eq!(tenant.ending().signal(), Some(Signal::SIGTERM as i32));
}

#[test]
fn with_closed_standard_streams_the_hook_does_not_write_to_the_programs_files() {
    let _lock = shared();
    let node = Node::start(ONE);
    let result = node.path().join("result");
    // The first file the program opens gets descriptor 0, 1 or 2; "launches" writes its answer to descriptor 1.
    let script = format!("exec 0<&- 2>&- 1>'{}'; \"$@\"; echo $? >>'{}'", result.display(), result.display());
    let tenant = node.tenant("main", "launches").arguments("kernel 100").through_shell(&script).start();
    tenant.finish();
    assert_eq!(fs::read_to_string(&result).unwrap(), "100\n0\n");
    let script = format!("exec 0<&- 1>&- 2>&-; \"$@\"; echo $? >'{}'", result.display());
    let tenant = node.tenant("main", "launches").arguments("kernel 100").through_shell(&script).start();
    tenant.finish();
    assert_eq!(fs::read_to_string(&result).unwrap(), "0\n");
}

#[test]
fn with_the_kill_switch_a_program_runs_as_if_there_were_no_hook() {
    let _lock = shared();
    let node = Node::start(ONE);
    let by_environment = || node.tenant("main", "tenant").environment("SLUICE_DISABLE", "1").start();
    let by_file = || {
        // Beside the sockets: the switch for a whole node.
        fs::write(node.path().join("disable"), "").expect("the node's directory is writable");
        node.tenant("main", "tenant").start()
    };
    for mut tenant in [by_environment(), by_file()] {
        tenant.expect("ready");
        assert_eq!(tenant.ask("total"), node.ledger().gpu.memory_total.to_string());
        assert_eq!(tenant.ask("launch 10 100"), "launched");
        assert_eq!(tenant.ask("sync"), "synced");
        assert_eq!(tenant.ask("check"), "right");
        tenant.finish().expect_success();
    }
    assert_eq!(node.metric("sluice_grants_total", "main"), 0.0);
}

#[test]
fn a_thread_that_is_cancelled_while_it_waits_for_the_gpu_leaves_no_activity() {
    let _lock = shared();
    let node = Node::with(ONE).without_manager().start();
    let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
    let mut tenant = node.tenant("main", "cancelled").start();
    tenant.expect("waiting");
    tenant.expect("idle");
    eventually("the process to be idle", || (!manager.is_busy()).then_some(()));
    tenant.finish().expect_success();
}
