//! Limits cover what NVML reports: contexts, modules, and memory whose charge a tenant has falsely released.
#![allow(clippy::unwrap_used, reason = "a test ends where its own means fail")]

use sluice_preload_tests::waiting::TIMEOUT;
use sluice_preload_tests::{MIB, Node, NodeOptions, Tenant, eventually, gemini_frames, shared};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const REFUSED: &str = "refused 2";
/// Each context of these simulated GPUs.
const CONTEXT: u64 = 512 * MIB;

/// A node whose manager reads NVML.
fn measuring(clients: &[(&str, u64)]) -> NodeOptions {
    let lines = clients.iter().map(|(name, limit)| format!("{name} 0.05 1.0 {limit}\n"));
    Node::with(&format!("{}\n{}", clients.len(), lines.collect::<String>())).measuring_memory()
}

/// A tenant whose overhead has been measured.
fn measured(node: &Node, client: &str, overhead: u64) -> Tenant {
    let mut tenant = node.tenant(client, "tenant").start();
    tenant.expect("ready");
    assert!(tenant.ask(&format!("take alloc {}", 2 * MIB)).starts_with("took"), "attaches");
    wait_for_overhead(node, client, overhead);
    tenant
}

#[track_caller]
fn wait_for_overhead(node: &Node, client: &str, overhead: u64) {
    eventually(&format!("an overhead of {overhead} bytes"), || {
        (node.metric("sluice_memory_overhead_bytes", client) == overhead as f64).then_some(())
    });
}

fn readings(node: &Node) -> f64 {
    node.metrics().sum("sluice_memory_readings_total", &["outcome=\"complete\""]).unwrap_or(0.0)
}

#[test]
fn global_variables_of_a_module_count_towards_the_limit_and_end_with_the_process() {
    let _lock = shared();
    let node = measuring(&[("globals", 1024 * MIB)]).start();
    let mut tenant = measured(&node, "globals", CONTEXT);
    assert_eq!(tenant.ask("info"), format!("{} {}", 510 * MIB, 1024 * MIB));
    assert_eq!(tenant.ask(&format!("load {}", 600 * MIB)), "loaded");
    wait_for_overhead(&node, "globals", CONTEXT + 600 * MIB);
    assert_eq!(tenant.ask(&format!("take alloc {}", 2 * MIB)), REFUSED);
    assert_eq!(tenant.ask("info"), format!("0 {}", 1024 * MIB));
    // Nothing of the process is stopped or freed.
    assert_eq!(tenant.ask("spin 10 100"), "launched");
    assert_eq!(tenant.ask("sync"), "synced");
    tenant.finish().expect_success();
    wait_for_overhead(&node, "globals", 0);
}

/// Nothing of the process was read before its first allocation.
#[test]
fn program_that_fills_its_limit_at_once_does_not_exceed_it_by_its_context() {
    let _lock = shared();
    let limit = 1024 * MIB;
    let node = measuring(&[("filler", limit)]).start();
    let mut tenant = node.tenant("filler", "tenant").start();
    tenant.expect("ready");
    let mut taken = 0;
    while tenant.ask(&format!("take alloc {}", 30 * MIB)).starts_with("took") {
        taken += 1;
    }
    assert_eq!(taken, 17, "510 MiB beside a context");
    assert!(node.row(&tenant).reported_bytes <= limit + 2 * MIB);
}

/// The program's first question is its first call after the context: the manager has read nothing of the process yet.
#[test]
fn first_answer_includes_the_context_of_the_process() {
    let _lock = shared();
    let limit = 2_048 * MIB;
    for by in ["cuda", "nvml"] {
        let node = measuring(&[("asks", limit)]).start();
        let lines = node.tenant("asks", "first_answer").arguments(by).start().finish().expect_success().lines;
        assert_eq!(lines, [format!("{} 0", limit - CONTEXT)], "{by}");
    }
}

/// What the first process has freed does not hide the context of the second one.
#[test]
fn first_answer_includes_the_context_after_another_process_has_freed_much() {
    let _lock = shared();
    let limit = 2_048 * MIB;
    for lives in [true, false] {
        let node = measuring(&[("asks", limit)]).start();
        let mut first = node.tenant("asks", "tenant").start();
        first.expect("ready");
        assert!(first.ask(&format!("take alloc {}", 1_000 * MIB)).starts_with("took"));
        assert_eq!(first.ask("drop 0"), "dropped");
        let first = if lives {
            Some(first)
        } else {
            first.finish().expect_success();
            None
        };
        let lines =
            node.tenant("asks", "first_answer").arguments("cuda").start().finish().expect_success().lines;
        let contexts = if lives { 2 } else { 1 };
        assert_eq!(lines, [format!("{} 0", limit - contexts * CONTEXT)], "the first process lives: {lives}");
        drop(first);
    }
}

#[test]
fn contexts_of_ten_clients_do_not_exhaust_the_gpu() {
    let _lock = shared();
    let names: Vec<String> = (0..10).map(|number| format!("client-{number}")).collect();
    let clients: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1024 * MIB)).collect();
    let node = measuring(&clients).simulator_arguments("--memory 10Gi").start();
    let mut tenants: Vec<Tenant> = names.iter().map(|name| measured(&node, name, CONTEXT)).collect();
    for tenant in &mut tenants {
        let mut taken = 0;
        while tenant.ask(&format!("take alloc {}", 30 * MIB)).starts_with("took") {
            taken += 1;
        }
        assert_eq!(taken, 17, "510 MiB beside a context and 2 MiB");
    }
    let gpu = node.ledger().gpu;
    assert_eq!(gpu.memory_used, gpu.memory_total);
}

#[test]
fn limit_below_the_cost_of_a_context_is_logged_with_the_process() {
    let _lock = shared();
    let node = measuring(&[("small", 256 * MIB)]).start();
    let mut tenant = node.tenant("small", "tenant").start();
    tenant.expect("ready");
    assert_eq!(tenant.ask("take alloc 1"), REFUSED);
    let line = node.logged(&["memory limit is reached", "small"]);
    assert!(line.contains(&tenant.pid().to_string()) && line.contains(&(256 * MIB).to_string()), "{line}");
    assert_eq!(tenant.ask("take alloc 1"), REFUSED);
}

/// The manager's answer to a frame with this number.
fn answer(stream: &mut UnixStream, frame: [u8; 80]) -> [u8; 40] {
    let mut answer = [0; 40];
    stream.write_all(&frame).unwrap();
    stream.read_exact(&mut answer).unwrap();
    answer
}

/// This process is the tenant: it has memory on the GPU, and tells the manager that it has freed it.
#[test]
fn tenant_that_releases_its_charge_and_keeps_its_memory_is_refused_more() {
    let _lock = shared();
    let node = measuring(&[("forger", 1024 * MIB)]).start();
    let gpu = sluice_sim::client::Gpu::connect(node.simulator(), "forger").unwrap();
    let mut stream = UnixStream::connect(node.socket()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut update = |bytes, allocate| {
        let answer = answer(&mut stream, gemini_frames::memory_request("forger", 1, bytes, allocate));
        gemini_frames::i32_at(&answer, 4) == 1
    };
    // 3.6 GiB under a limit of 1 GiB. On a busy machine a reading shows a part of it before the end: the rest is taken without a charge.
    let taken = 3_700;
    for _ in 0..taken / 100 {
        let is_charged = update(100 * MIB, true);
        gpu.allocate(100 * MIB).unwrap();
        assert!(!is_charged || update(100 * MIB, false));
    }
    let before = readings(&node);
    eventually("a refusal", || (!update(1, true) || !update(1, false)).then_some(()));
    assert!(readings(&node) <= before + 4.0, "a reading or two after the forgery show it");
    wait_for_overhead(&node, "forger", taken * MIB);
    node.expect_violation("memory_limit");
}

/// NVML reports the memory as it was 150 ms before. The program allocates all that its limit allows, frees it and allocates it again,
/// for a dozen readings.
#[test]
fn program_within_its_limit_is_never_refused_although_nvml_lags_behind() {
    let _lock = shared();
    let node = measuring(&[("churns", 1024 * MIB)]).simulator_arguments("--report-lag-ms 150").start();
    let mut tenant = measured(&node, "churns", CONTEXT);
    let begin = readings(&node);
    while readings(&node) < begin + 12.0 {
        for bytes in [510, 256, 510, 2].map(|mib| mib * MIB) {
            assert_eq!(tenant.ask(&format!("churn 50 {bytes}")), "churned 50", "{bytes} bytes");
        }
        assert!(node.metric("sluice_memory_overhead_bytes", "churns") <= CONTEXT as f64);
    }
    wait_for_overhead(&node, "churns", CONTEXT);
    assert_eq!(tenant.ask(&format!("churn 1 {}", 511 * MIB)), "churned 0", "1 MiB over the limit");
    tenant.finish().expect_success();
}
