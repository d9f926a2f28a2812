//! Peers of Gemini's protocol: a client with the pod-manager, and the hook with a manager.

use sluice_preload_tests::gemini_frames;
use sluice_preload_tests::gemini_peers::{GeminiClient, GeminiManager};
use sluice_preload_tests::host_time::HostTime;
use sluice_preload_tests::{MIB, MS, Node, checks, eventually, exclusive, shared};
use std::time::Duration;

const SECOND: u64 = 1_000 * MS;

/// An old client whose GPU work is real: a bare tenant that computes exactly as long as each token allows.
fn compute_by_tokens(node: &Node, name: &str, until_ns: u64) -> i32 {
    let mut worker = node.tenant(name, "tenant").without_hook().start();
    worker.expect("ready");
    let mut client = GeminiClient::connect(node.tcp(), name);
    let mut burst = 0.0;
    while node.ledger().gpu.now_ns < until_ns {
        let quota_ms = client.quota(0.0, burst);
        assert!(quota_ms > 0.0 && quota_ms <= 1_000.0, "a token of {quota_ms} ms");
        let millis = Duration::from_secs_f64(quota_ms / 1_000.0).as_millis();
        assert_eq!(worker.ask(&format!("launch {millis} 1000")), "launched");
        assert_eq!(worker.ask("sync"), "synced");
        burst = quota_ms;
    }
    assert_eq!(worker.ask("check"), "right");
    let pid = worker.pid();
    worker.finish().expect_success();
    pid
}

#[test]
fn a_gemini_client_gets_its_share_beside_a_client_with_the_hook() {
    // The promised two points of accuracy are tested on a machine without other work: grants follow the real clock.
    let _lock = exclusive();
    let node = Node::start("2\nold 0.3 1.0 8589934592\nhooked 0.7 1.0 8589934592\n");
    let mut hooked = node.tenant("hooked", "busy").arguments("2000 50").start();
    hooked.expect("ready");
    node.when_completed(&hooked, 16);
    let host = HostTime::begin();
    let begin = node.ledger().gpu.now_ns;
    let end = begin + 9 * SECOND;
    let old = compute_by_tokens(&node, "old", end);
    let window = node.window((begin + SECOND, end));
    checks::shares(&window, &[(&[old], 0.3), (&[hooked.pid()], 0.7)], 0.8, host.taken()).unwrap();
    hooked.finish().expect_success();
}

#[test]
fn a_gemini_clients_memory_is_charged_and_released_when_it_disconnects() {
    let _lock = shared();
    let node = Node::start(&format!("1\nold 0.3 1.0 {}\n", 10 * MIB));
    let mut first = GeminiClient::connect(node.tcp(), "old");
    assert_eq!(first.memory(), (0, 10 * MIB));
    assert!(first.update(10 * MIB, true));
    assert!(!first.update(1, true));
    assert!(first.update(MIB, false));
    assert_eq!(first.memory(), (9 * MIB, 10 * MIB));
    let mut second = GeminiClient::connect(node.tcp(), "old");
    assert!(!second.update(MIB + 1, true));
    assert!(second.update(MIB, true));
    drop(first);
    eventually("the first one's memory", || (second.memory().0 == MIB).then_some(()));
    // More than was ever charged cannot be released.
    second.update(5 * MIB, false);
    assert_eq!(second.memory(), (0, 10 * MIB));
}

#[test]
fn an_unknown_gemini_client_gets_no_answer_until_it_is_in_the_resource_file() {
    let _lock = shared();
    let node = Node::start("1\nknown 0.3 1.0 8589934592\n");
    let mut newcomer = GeminiClient::connect(node.tcp(), "newcomer");
    newcomer.send(&gemini_frames::quota_request("newcomer", 1, 0.0, 0.0));
    node.logged(&["newcomer"]);
    // The manager answers others, so the missing answer is intended.
    let mut known = GeminiClient::connect(node.tcp(), "known");
    assert_eq!(known.memory().1, 8_589_934_592);
    node.write_resources("2\nknown 0.3 1.0 8589934592\nnewcomer 0.3 1.0 4096\n");
    eventually("the newcomer to be a client", || {
        (node.metric("sluice_memory_limit_bytes", "newcomer") == 4096.0).then_some(())
    });
    // The first answer that it gets belongs to its second request.
    newcomer.send(&gemini_frames::request("newcomer", 2, gemini_frames::MEM_LIMIT, &[]));
    let answer = newcomer.answer().expect("an answer to a known client");
    assert_eq!((gemini_frames::i32_at(&answer, 0), gemini_frames::u64_at(&answer, 12)), (2, 4096));
    assert!(known.quota(0.0, 0.0) > 0.0);
}

#[test]
fn the_hook_gets_tokens_from_a_gemini_manager() {
    let _lock = shared();
    let node = Node::with("").without_manager().start();
    let manager = GeminiManager::start(256 * MIB, 20.0);
    let mut tenant = node
        .tenant("kubeshare/pod", "tenant")
        .without_environment("SLUICE_SOCKET")
        .without_environment("SLUICE_CLIENT")
        .environment("POD_NAME", "kubeshare/pod")
        .environment("POD_MANAGER_IP", "127.0.0.1")
        .environment("POD_MANAGER_PORT", manager.address().port().to_string())
        .start();
    tenant.expect("ready");
    // Memory does not wait for a token, and is the old manager's to refuse.
    assert!(tenant.ask(&format!("take alloc {}", 100 * MIB)).starts_with("took"));
    assert_eq!(manager.used(), 100 * MIB);
    assert_eq!(tenant.ask(&format!("take alloc {}", 157 * MIB)), "refused 2");
    assert_eq!(tenant.ask("info"), format!("{} {}", 156 * MIB, 256 * MIB));
    tenant.send("launch 100 1000");
    eventually("a request for a token", || (manager.count(gemini_frames::QUOTA) >= 1).then_some(()));
    assert_eq!(node.row(&tenant).kernels_submitted, 0, "it launched without a token");
    manager.grant(true);
    // All of it is submitted under the first token of 20 ms, and so some 80 ms run past it.
    tenant.expect("launched");
    assert_eq!(tenant.ask("sync"), "synced");
    for _ in 0..40 {
        assert_eq!(tenant.ask("launch 5 1000"), "launched");
        assert_eq!(tenant.ask("sync"), "synced");
    }
    assert_eq!(tenant.ask("check"), "right");
    assert!(
        manager.count(gemini_frames::QUOTA) >= 9,
        "{} tokens of 20 ms for 200 ms of work",
        manager.count(gemini_frames::QUOTA)
    );
    let asked = manager.received().into_iter().filter(|request| request.kind == gemini_frames::QUOTA);
    let overuse: Vec<f64> = asked.map(|request| gemini_frames::f64_at(&request.payload, 0)).collect();
    assert!(overuse[0] == 0.0 && overuse[1] > 60.0, "reported overuse: {overuse:?}");
    for request in manager.received() {
        assert_eq!(request.name, "kubeshare/pod");
        assert!(request.kind <= gemini_frames::MEM_UPDATE, "an old manager does not know {request:?}");
        if request.kind == gemini_frames::QUOTA {
            let (overuse, burst) =
                (gemini_frames::f64_at(&request.payload, 0), gemini_frames::f64_at(&request.payload, 8));
            assert!((0.0..1_000.0).contains(&overuse) && (0.0..10_000.0).contains(&burst), "{request:?}");
        }
    }
    tenant.finish().expect_success();
    eventually("the end of its connections", || (manager.used() == 0).then_some(()));
}
