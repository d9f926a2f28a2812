//! Memory limits: exact to the byte, for every way of allocating, over all processes of a client.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_preload_tests::{MIB, Node, Tenant, eventually, shared};

const REFUSED: &str = "refused 2";

fn started(node: &Node, client: &str) -> Tenant {
    let mut tenant = node.tenant(client, "tenant").start();
    tenant.expect("ready");
    tenant
}

fn bytes_on_gpu(node: &Node, client: &str) -> u64 {
    node.ledger()
        .processes
        .iter()
        .filter(|row| row.label == client && !row.ended)
        .map(|row| row.memory_bytes)
        .sum()
}

#[test]
fn four_processes_of_a_client_get_exactly_its_limit_and_not_a_byte_more() {
    let _lock = shared();
    const LIMIT: u64 = 1_000_003_477;
    let node = Node::start(&format!("1\ncrowd 0.5 1.0 {LIMIT}\n"));
    let mut tenants: Vec<Tenant> = (0..4).map(|_| started(&node, "crowd")).collect();
    // All four ask at the same time, for smaller and smaller pieces, until every one of them is refused.
    for piece in [64 * MIB + 1, 4 * MIB + 3, 65_537, 1_021, 97, 1] {
        loop {
            tenants.iter_mut().for_each(|tenant| tenant.send(&format!("take alloc {piece}")));
            let answers: Vec<String> = tenants.iter_mut().map(Tenant::line).collect();
            assert!(
                answers.iter().all(|answer| answer.starts_with("took") || answer == REFUSED),
                "{answers:?}"
            );
            assert!(bytes_on_gpu(&node, "crowd") <= LIMIT, "more on the GPU than the limit");
            if answers.iter().all(|answer| answer == REFUSED) {
                break;
            }
        }
    }
    assert_eq!(bytes_on_gpu(&node, "crowd"), LIMIT);
    assert_eq!(node.metric("sluice_memory_used_bytes", "crowd"), LIMIT as f64);
    assert_eq!(node.metric("sluice_memory_limit_bytes", "crowd"), LIMIT as f64);
    assert!(node.metric("sluice_memory_denied_total", "crowd") >= 24.0);
    for tenant in &mut tenants {
        assert_eq!(tenant.ask("info"), format!("0 {LIMIT}"));
    }
    // What one gives back, another may take, to the byte.
    assert_eq!(tenants[0].ask("drop 0"), "dropped");
    assert_eq!(tenants[3].ask(&format!("take alloc {}", 64 * MIB + 2)), REFUSED);
    assert!(tenants[3].ask(&format!("take alloc {}", 64 * MIB + 1)).starts_with("took"));
    assert_eq!(bytes_on_gpu(&node, "crowd"), LIMIT);
    for tenant in tenants {
        tenant.finish().expect_success();
    }
    eventually("all memory to be given back", || {
        (node.metric("sluice_memory_used_bytes", "crowd") == 0.0).then_some(())
    });
    assert_eq!(bytes_on_gpu(&node, "crowd"), 0);
}

#[test]
fn every_way_of_allocating_is_charged_and_given_back() {
    let _lock = shared();
    let node = Node::start(&format!("1\nways 0.5 1.0 {}\n", 64 * MIB));
    let mut tenant = started(&node, "ways");
    let mut number = 0;
    for way in ["alloc", "pitch", "managed", "async", "pool", "create", "array", "array3d", "mipmap"] {
        let mut take = |tenant: &mut Tenant| {
            let answer = tenant.ask(&format!("take {way} {}", 32 * MIB));
            assert_eq!(answer, format!("took {number}"), "{way}");
            number += 1;
            number - 1
        };
        let first = take(&mut tenant);
        assert_eq!(bytes_on_gpu(&node, "ways"), 32 * MIB, "{way}: bytes on the GPU");
        assert_eq!(tenant.ask("info"), format!("{} {}", 32 * MIB, 64 * MIB), "{way}");
        assert_eq!(tenant.ask(&format!("take {way} {}", 34 * MIB)), REFUSED, "{way}: 2 MiB over the limit");
        let second = take(&mut tenant);
        assert_eq!(tenant.ask(&format!("take {way} {}", 2 * MIB)), REFUSED, "{way}: nothing is left");
        assert_eq!(bytes_on_gpu(&node, "ways"), 64 * MIB, "{way}: bytes on the GPU");
        for block in [first, second] {
            assert_eq!(tenant.ask(&format!("drop {block}")), "dropped", "{way}");
        }
        assert_eq!(bytes_on_gpu(&node, "ways"), 0, "{way}: bytes on the GPU after the frees");
        assert_eq!(tenant.ask("info"), format!("{} {}", 64 * MIB, 64 * MIB), "{way}: after the frees");
    }
    tenant.finish().expect_success();
}

#[test]
fn a_program_sees_its_limit_as_the_size_of_the_gpu() {
    let _lock = shared();
    let node = Node::start(&format!("1\nsmall 0.5 1.0 {}\n", 1_234 * MIB));
    let mut tenant = started(&node, "small");
    assert_eq!(tenant.ask("total"), (1_234 * MIB).to_string());
    assert_eq!(tenant.ask("info"), format!("{} {}", 1_234 * MIB, 1_234 * MIB));
    assert!(tenant.ask(&format!("take alloc {}", 1_000 * MIB)).starts_with("took"));
    assert_eq!(tenant.ask("info"), format!("{} {}", 234 * MIB, 1_234 * MIB));
    // Bare, the same program sees the whole GPU.
    let mut bare = node.tenant("bare", "tenant").without_hook().start();
    bare.expect("ready");
    assert_eq!(bare.ask("total"), node.ledger().gpu.memory_total.to_string());
}

#[test]
fn an_allocation_that_the_driver_refuses_is_not_charged() {
    let _lock = shared();
    let node = Node::start(&format!("1\nhuge 0.5 1.0 {}\n", 1_u64 << 40));
    let total = node.ledger().gpu.memory_total;
    let mut tenant = started(&node, "huge");
    assert!(tenant.ask(&format!("take alloc {MIB}")).starts_with("took"));
    for way in ["alloc", "managed", "async", "create"] {
        let beyond = (total / (2 * MIB) + 1) * 2 * MIB;
        let answer = tenant.ask(&format!("take {way} {beyond}"));
        assert!(answer.starts_with("refused") || way == "managed", "{way}: {answer}");
        if answer.starts_with("refused") {
            assert_eq!(node.metric("sluice_memory_used_bytes", "huge"), MIB as f64, "{way}");
        } else {
            tenant.ask("drop 1");
        }
    }
}

/// The simulated GPU can run 132 times 2048 threads at once, so each KiB of stack takes 264 MiB.
#[test]
fn what_a_program_adds_to_the_heap_and_the_stacks_of_a_context_is_charged_until_the_context_ends() {
    let _lock = shared();
    let node = Node::start(&format!("1\nadds 0.5 1.0 {}\n", 1024 * MIB));
    let mut tenant = node.tenant("adds", "context_limits").start();
    let lines: Vec<String> = (0..8).map(|_| tenant.line()).collect();
    assert_eq!(
        lines,
        ["0 1024", "0 1024", "0 512", "2 512", "0 1024", "0 496", "0 760", "1024"],
        "2 is CUDA_ERROR_OUT_OF_MEMORY"
    );
    tenant.finish().expect_success();
}

#[test]
fn memory_of_a_context_that_is_used_twice_is_charged_until_the_last_use_ends() {
    let _lock = shared();
    let node = Node::start(&format!("1\nuses 0.5 1.0 {}\n", 1024 * MIB));
    let mut tenant = node.tenant("uses", "attached").start();
    assert_eq!([tenant.line(), tenant.line()], ["512", "1024"]);
    tenant.finish().expect_success();
}

#[test]
fn the_memory_of_a_killed_process_is_back_for_the_others_of_its_client() {
    let _lock = shared();
    let node = Node::start(&format!("1\npod 0.5 1.0 {}\n", 64 * MIB));
    let mut victim = started(&node, "pod");
    let mut other = started(&node, "pod");
    assert!(victim.ask(&format!("take alloc {}", 48 * MIB)).starts_with("took"));
    assert!(other.ask(&format!("take alloc {}", 16 * MIB)).starts_with("took"));
    assert_eq!(other.ask("take alloc 1"), REFUSED);
    victim.signal(Signal::SIGKILL);
    assert_eq!(victim.ending().signal(), Some(9));
    eventually("the memory of the killed process", || {
        (node.metric("sluice_memory_used_bytes", "pod") == (16 * MIB) as f64).then_some(())
    });
    assert!(other.ask(&format!("take alloc {}", 48 * MIB)).starts_with("took"));
    assert_eq!(other.ask("take alloc 1"), REFUSED);
}

/// A forked child inherits the connection, so that its closing cannot be what frees the memory.
#[test]
fn the_memory_of_a_process_whose_forked_child_lives_on_is_reclaimed() {
    let _lock = shared();
    let node = Node::start(&format!("1\nfamily 0.5 1.0 {}\n", 64 * MIB));
    let mut parent = node.tenant("family", "forks").arguments("keep").start();
    let line = parent.line();
    let pids: Vec<i32> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(node.metric("sluice_memory_used_bytes", "family"), (64 * MIB) as f64);
    parent.signal(Signal::SIGKILL);
    assert_eq!(parent.ending().signal(), Some(9));
    eventually("the memory of the killed parent", || {
        (node.metric("sluice_memory_used_bytes", "family") == 0.0).then_some(())
    });
    kill(Pid::from_raw(pids[1]), None).expect("the child is still there");
    let mut successor = started(&node, "family");
    assert!(successor.ask(&format!("take alloc {}", 64 * MIB)).starts_with("took"));
}

#[test]
fn a_client_without_memory_left_goes_on_computing_and_disturbs_nobody() {
    let _lock = shared();
    let node = Node::start(&format!("2\nfull 0.5 1.0 {}\nother 0.5 1.0 {}\n", 8 * MIB, 64 * MIB));
    let mut full = started(&node, "full");
    let mut other = started(&node, "other");
    assert_eq!(full.ask("launch 10 100"), "launched");
    assert_eq!(full.ask(&format!("take alloc {}", 8 * MIB)), REFUSED);
    assert!(other.ask(&format!("take alloc {}", 63 * MIB)).starts_with("took"));
    assert_eq!(full.ask("launch 10 100"), "launched");
    assert_eq!(full.ask("sync"), "synced");
    assert_eq!(full.ask("check"), "right");
    full.finish().expect_success();
    other.finish().expect_success();
}
