//! Memory that leaves the GPU for that of others: programs that do not fit together take turns, and no byte is lost.
#![allow(clippy::unwrap_used, reason = "a test ends where its own means fail")]

use nix::sys::signal::Signal;
use sluice_preload_tests::{MIB, Node, NodeOptions, Tenant, eventually, shared};
use std::time::{Duration, Instant};

mod pacing;
mod suspension;

const REFUSED: &str = "refused 2";
/// Of the simulated GPU; each context takes [`CONTEXT`] of it.
const GPU: u64 = 104 * MIB;
const CONTEXT: u64 = 8 * MIB;
/// What clients share: the GPU without the contexts of five processes.
const SHARED: u64 = GPU - 5 * CONTEXT;
/// Three quarters of what is shared.
const LARGE: u64 = 2 * BLOCK;
/// One chunk: the less is moved, the faster the tests are.
const BLOCK: u64 = 24 * MIB;

/// A node with a small GPU whose clients may have more memory together than it has.
fn overcommitted(clients: &str, arguments: &str) -> NodeOptions {
    with_host_memory(4 * GPU, clients, arguments)
}

fn with_host_memory(host: u64, clients: &str, arguments: &str) -> NodeOptions {
    node(clients).manager_arguments(&format!(
        "--overcommit-memory {SHARED} --host-memory {host} --memory-quantum-ms 500 {arguments}"
    ))
}

fn node(clients: &str) -> NodeOptions {
    Node::with(&format!("clients:\n{clients}"))
        .simulator_arguments(&format!("--memory {GPU} --context-memory {}", CONTEXT))
}

fn client(name: &str, more: &str) -> String {
    format!("  - {{ name: {name}, request: 0.3, memory: {LARGE}{more} }}\n")
}

fn two(more: &str) -> String {
    client("first", more) + &client("second", more)
}

/// A program with this much memory in blocks.
fn with_memory(node: &Node, client: &str, bytes: u64) -> Tenant {
    let mut tenant = node.tenant(client, "movable").start();
    tenant.expect("ready");
    for number in 0..bytes / BLOCK {
        assert_eq!(tenant.ask(&format!("take {BLOCK}")), format!("took {number}"));
    }
    tenant
}

fn steps(answer: &str) -> (u64, u64) {
    let mut words = answer.strip_prefix("ran ").unwrap_or_else(|| panic!("{answer}")).split(' ');
    let mut number = || words.next().unwrap().parse().unwrap();
    (number(), number())
}

fn on_gpu(node: &Node, client: &str) -> u64 {
    let processes = node.ledger().processes;
    processes.iter().filter(|row| row.label == client && !row.ended).map(|row| row.memory_bytes).sum()
}

fn take_turns(arguments: &str) {
    let node = overcommitted(&two(", overcommit: true"), arguments).start();
    let first = with_memory(&node, "first", LARGE);
    let mut second = with_memory(&node, "second", BLOCK);
    assert_eq!(
        second.ask("info"),
        format!("{} {LARGE}", LARGE - BLOCK),
        "free although the first one holds it"
    );
    for number in 1..LARGE / BLOCK {
        assert_eq!(second.ask(&format!("take {BLOCK}")), format!("took {number}"));
    }
    let mut tenants = [first, second];
    let begun = Instant::now();
    let (mut ran, mut waited) = ([0, 0], [0, 0]);
    // How long a quantum lasts follows from the time of the moves, which is long on a busy machine.
    while waited.iter().any(|longest| *longest < 300) || ran.iter().any(|steps| *steps < 20) {
        assert!(
            begun.elapsed() < Duration::from_secs(240),
            "steps {ran:?}, longest of them in ms {waited:?}"
        );
        tenants.iter_mut().for_each(|tenant| tenant.send("run 200"));
        for (at, tenant) in tenants.iter_mut().enumerate() {
            let (steps, longest) = steps(&tenant.line());
            ran[at] += steps;
            waited[at] = waited[at].max(longest);
        }
    }
    assert!(node.metric("sluice_memory_waited_seconds_total", "first") > 0.0);
    eventually("both to have moved", || {
        let moved = node.metric("sluice_memory_moved_bytes_total", "first");
        (moved >= (2 * LARGE) as f64).then_some(())
    });
    let places = ["sluice_memory_resident_bytes", "sluice_memory_swapped_bytes"];
    let sum: f64 = places.map(|place| node.metric(place, "first")).iter().sum();
    assert_eq!(sum, LARGE as f64);
    for tenant in tenants {
        let mut tenant = tenant;
        assert_eq!(tenant.ask("verify"), "right");
        tenant.finish().expect_success();
    }
    eventually("all memory of the GPU to be free", || (node.ledger().gpu.memory_used == 0).then_some(()));
}

#[test]
fn two_programs_of_three_quarters_each_take_turns_and_lose_no_byte() {
    let _lock = shared();
    take_turns("--controls off");
}

#[test]
fn two_programs_whose_channel_groups_are_scheduled_take_turns_and_lose_no_byte() {
    let _lock = shared();
    take_turns("--controls simulated");
}

#[test]
fn second_program_is_refused_without_overcommitment() {
    let _lock = shared();
    let node = node(&two("")).start();
    let mut first = with_memory(&node, "first", LARGE);
    let mut second = with_memory(&node, "second", BLOCK);
    assert_eq!(second.ask(&format!("take {BLOCK}")), REFUSED);
    for tenant in [&mut first, &mut second] {
        assert_eq!(tenant.ask("verify"), "right");
    }
}

#[test]
fn latency_critical_client_gets_its_memory_while_a_best_effort_client_holds_it() {
    let _lock = shared();
    let node = with_critical().0.start();
    let mut first = with_memory(&node, "first", LARGE);
    first.send("run 4000");
    let mut critical = with_memory(&node, "critical", BLOCK);
    assert_eq!(on_gpu(&node, "first"), 0, "the memory of the best-effort client is on the GPU");
    assert!(steps(&critical.ask("run 500")).0 > 0);
    assert_eq!(critical.ask("verify"), "right");
    critical.finish().expect_success();
    let (ran, _) = steps(&first.line());
    assert!(ran > 0);
    assert_eq!(first.ask("verify"), "right");
    first.finish().expect_success();
}

/// A node with a best-effort client and a latency-critical one, for which it leaves the GPU.
fn with_critical() -> (NodeOptions, String) {
    let critical =
        format!("  - {{ name: critical, request: 0.3, class: latency-critical, memory: {BLOCK} }}\n");
    (overcommitted(&(client("first", ", overcommit: true") + &critical), "--controls off"), critical)
}

#[test]
fn memory_leaves_only_after_the_work_of_all_contexts() {
    let _lock = shared();
    let node = with_critical().0.start();
    let mut first = with_memory(&node, "first", LARGE);
    assert_eq!(first.ask("elsewhere 1500"), "launched");
    let critical = with_memory(&node, "critical", BLOCK);
    assert_eq!(on_gpu(&node, "first"), 0);
    critical.finish().expect_success();
    assert_eq!(first.ask("verify"), "right");
    first.finish().expect_success();
}

#[test]
fn memory_returns_although_its_clients_limit_was_lowered() {
    let _lock = shared();
    let (options, critical) = with_critical();
    let mut node = options.start();
    let mut first = with_memory(&node, "first", LARGE);
    node.kill_manager();
    let lowered = client("first", ", overcommit: true").replace(&LARGE.to_string(), &BLOCK.to_string());
    node.write_resources(&format!("clients:\n{lowered}{critical}"));
    node.start_manager();
    assert!(steps(&first.ask("run 500")).0 > 0);
    let mut other = with_memory(&node, "critical", BLOCK);
    assert_eq!(on_gpu(&node, "first"), 0);
    assert_eq!(other.ask("verify"), "right");
    other.finish().expect_success();
    assert!(steps(&first.ask("run 500")).0 > 0);
    assert_eq!(first.ask("verify"), "right");
    first.finish().expect_success();
}

#[test]
fn free_while_a_graph_is_captured_leaves_the_capture_valid_and_frees_afterwards() {
    let _lock = shared();
    let node = overcommitted(&client("first", ", overcommit: true"), "--controls off").start();
    let mut first = with_memory(&node, "first", LARGE);
    assert_eq!(first.ask("capture 1"), "captured");
    eventually("the freed block to leave the GPU", || {
        (on_gpu(&node, "first") == LARGE - BLOCK).then_some(())
    });
    assert_eq!(first.ask("verify"), "right");
    first.finish().expect_success();
}

#[test]
fn memory_returns_when_the_manager_is_killed_while_it_is_away() {
    let _lock = shared();
    let mut node = overcommitted(&two(", overcommit: true"), "--controls off").start();
    let mut first = with_memory(&node, "first", LARGE);
    let second = with_memory(&node, "second", LARGE);
    eventually("the memory of the first program to be away", || (on_gpu(&node, "first") == 0).then_some(()));
    node.kill_manager();
    second.finish().expect_success();
    assert_eq!(first.ask("verify"), "right");
    node.start_manager();
    assert!(steps(&first.ask("run 1000")).0 > 0);
    assert_eq!(first.ask("verify"), "right");
    first.finish().expect_success();
}

/// The other tests have blocks of one chunk.
#[test]
fn memory_of_several_chunks_leaves_and_returns_as_a_whole() {
    let _lock = shared();
    let block = 140 * MIB;
    let clients =
        format!("clients:\n  - {{ name: first, request: 0.3, memory: {block}, overcommit: true }}\n");
    let memory = format!("--memory {} --context-memory {CONTEXT}", block + 2 * CONTEXT);
    let options = Node::with(&clients).simulator_arguments(&memory);
    let manager = format!("--overcommit-memory {block} --host-memory {block} --controls off");
    let node = options.manager_arguments(&manager).start();
    let mut first = node.tenant("first", "movable").start();
    first.expect("ready");
    assert_eq!(first.ask(&format!("take {block}")), "took 0");
    for (suspended, resident) in [(true, 0), (false, block)] {
        node.write_resources(&clients.replace("true", &format!("true, suspended: {suspended}")));
        eventually("the memory to move", || (on_gpu(&node, "first") == resident).then_some(()));
    }
    assert_eq!(first.ask("verify"), "right");
    first.finish().expect_success();
}

#[test]
fn driver_reports_the_same_of_an_address_wherever_its_memory_is_and_frees_end_it() {
    let _lock = shared();
    let node = overcommitted(&client("first", ", overcommit: true"), "--controls off").start();
    let mut first = with_memory(&node, "first", 2 * BLOCK);
    assert_eq!(first.ask("where 1"), format!("0 {BLOCK} 2"));
    assert_eq!(node.metric("sluice_memory_used_bytes", "first"), (2 * BLOCK) as f64);
    assert_eq!(first.ask("drop 0"), "dropped");
    assert_eq!(on_gpu(&node, "first"), BLOCK);
    assert_eq!(first.ask("gone"), "gone");
    assert_eq!(on_gpu(&node, "first"), 0, "the context has ended");
    eventually("the charge to end", || {
        (node.metric("sluice_memory_used_bytes", "first") == 0.0).then_some(())
    });
    first.finish().expect_success();
}

#[test]
fn manager_killed_while_memory_moves_costs_no_byte() {
    let _lock = shared();
    let mut node = overcommitted(&two(", overcommit: true"), "--controls off").start();
    let mut tenants = ["first", "second"].map(|client| with_memory(&node, client, LARGE));
    assert_eq!(on_gpu(&node, "first"), 0);
    for _ in 0..3 {
        let away = usize::from(on_gpu(&node, "first") > 0);
        tenants.iter_mut().for_each(|tenant| tenant.send("run 1000"));
        // Its chunks exist, and the copy of their content begins.
        let name = ["first", "second"][away];
        eventually("memory to return", || (on_gpu(&node, name) > 0).then_some(()));
        node.kill_manager();
        node.start_manager();
        for tenant in &mut tenants {
            assert!(steps(&tenant.line()).0 > 0);
        }
    }
    for mut tenant in tenants {
        assert_eq!(tenant.ask("verify"), "right");
        tenant.finish().expect_success();
    }
    eventually("all memory of the GPU to be free", || (node.ledger().gpu.memory_used == 0).then_some(()));
}

#[test]
fn process_killed_while_its_memory_is_away_leaves_none_anywhere() {
    let _lock = shared();
    let host = 2 * LARGE;
    let node = with_host_memory(host, &two(", overcommit: true"), "--controls off").start();
    let mut first = with_memory(&node, "first", LARGE);
    let mut second = with_memory(&node, "second", LARGE);
    eventually("the memory of the first program to be away", || (on_gpu(&node, "first") == 0).then_some(()));
    first.signal(Signal::SIGKILL);
    first.ending();
    eventually("the charge to end", || {
        (node.metric("sluice_memory_used_bytes", "first") == 0.0).then_some(())
    });
    // There is host memory for two processes, so the next one finds that of the killed one.
    let mut next = with_memory(&node, "first", LARGE);
    for tenant in [&mut next, &mut second] {
        assert_eq!(tenant.ask("verify"), "right");
    }
    next.finish().expect_success();
    second.finish().expect_success();
    eventually("all memory of the GPU to be free", || (node.ledger().gpu.memory_used == 0).then_some(()));
}

#[test]
fn process_without_a_place_on_the_host_is_refused_and_the_others_keep_their_memory() {
    let _lock = shared();
    let node = with_host_memory(LARGE, &two(", overcommit: true"), "--controls off").start();
    let mut first = with_memory(&node, "first", LARGE);
    let mut second = node.tenant("second", "movable").start();
    second.expect("ready");
    assert_eq!(second.ask(&format!("take {BLOCK}")), REFUSED);
    let full = format!("its allocation is refused: {LARGE} of {LARGE} bytes are in use, {BLOCK} are needed");
    node.logged(&["second", &full]);
    assert!(node.metric("sluice_memory_denied_total", "second") >= 1.0);
    assert_eq!((on_gpu(&node, "first"), first.ask("verify").as_str()), (LARGE, "right"));
    second.finish().expect_success();
    first.finish().expect_success();
}
