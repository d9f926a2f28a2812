//! Shares of the GPU's time, measured by the simulated GPU's ledger.
//!
//! The manager's grants follow the real clock, and so does the simulated GPU. Tests of shares therefore run alone.

use sluice_preload_tests::tenant::end;
use sluice_preload_tests::{MS, Node, Tenant, checks, exclusive, shared, tenant};
use sluice_test_bed::timeline;

const SECOND: u64 = 1_000 * MS;

/// 0.1 s of submitted work, so that a busy machine does not leave the GPU idle.
const DEEP: &str = "2000 50";

fn busy(node: &Node, clients: &[&str]) -> Vec<Tenant> {
    tenant::busy(node, clients, DEEP)
}

/// Two clients with requests of 0.3 and 0.7 whose programs `busy` have these arguments. The GPU is used for at least `busy` of the time.
fn check_requested_shares(arguments: &str, busy: f64) {
    // The promised two points of accuracy are tested on a machine without other work: grants follow the real clock.
    let _lock = exclusive();
    let node = Node::start("2\nbe-a 0.3 1.0 8589934592\nbe-b 0.7 1.0 8589934592\n");
    let tenants = tenant::busy(&node, &["be-a", "be-b"], arguments);
    let measured = node.undisturbed(20 * SECOND);
    let window = node.window(measured.span);
    let expected: [(&[i32], f64); 2] = [(&[tenants[0].pid()], 0.3), (&[tenants[1].pid()], 0.7)];
    checks::shares(&window, &expected, busy, measured.taken).unwrap_or_else(|failed| panic!("{failed}"));
    end(tenants);
}

#[test]
fn two_busy_clients_share_according_to_their_requests_over_twenty_seconds() {
    check_requested_shares(DEEP, 0.9);
}

#[test]
fn two_clients_with_short_queues_share_according_to_their_requests() {
    // 8 ms of submitted work each: less than a grant, so each client submits several times in a grant. The GPU is idle if the machine does
    // not run a client in time.
    check_requested_shares("1000 8", 0.6);
}

#[test]
fn two_processes_of_a_client_have_the_share_of_one() {
    // The promised two points of accuracy are tested on a machine without other work: grants follow the real clock.
    let _lock = exclusive();
    let node = Node::start("2\npair 0.5 1.0 8589934592\nsingle 0.5 1.0 8589934592\n");
    let tenants = busy(&node, &["pair", "pair", "single"]);
    let measured = node.undisturbed(8 * SECOND);
    let (window, accuracy) = (node.window(measured.span), checks::TWO_POINTS + measured.taken);
    let of_time = |tenants: &[Tenant]| tenants.iter().map(|t| window.share_of_time(t.pid())).sum::<f64>();
    let (pair, single) = (of_time(&tenants[..2]), of_time(&tenants[2..]));
    assert!((single - 0.5).abs() <= accuracy, "the single one had {single:.4} of the time");
    // The pair loses at most a tenth of its half to context switches between its two processes (docs/reference, context switch). A
    // share for each process would leave the single one a third.
    let possible = 0.45 - accuracy..=0.5 + accuracy;
    assert!(possible.contains(&pair), "the pair had {pair:.4} of the time");
    let of_busy = window.share_of_busy(tenants[2].pid());
    let possible = 0.5 - accuracy..=0.5 / 0.95 + accuracy;
    assert!(possible.contains(&of_busy), "the single one had {of_busy:.4} of the used time");
    end(tenants);
}

/// A kernel of half a second ends long after the grant. Its client repays that before it runs again.
#[test]
fn shares_hold_beside_a_client_whose_kernels_are_longer_than_its_grants() {
    let _lock = exclusive();
    let node = Node::start("2\nlong 0.1 1.0 8589934592\nshort 0.9 1.0 8589934592\n");
    let mut tenants = tenant::busy(&node, &["long"], "500000 1");
    tenants.extend(busy(&node, &["short"]));
    let measured = node.undisturbed(20 * SECOND);
    let window = node.window(measured.span);
    let share = |tenant: &Tenant| window.share_of_time(tenant.pid());
    // The window contains three or four of its kernels.
    assert!(share(&tenants[0]) <= 0.13 + measured.taken, "{:.4} of the time", share(&tenants[0]));
    assert!(share(&tenants[1]) >= 0.85 - measured.taken, "{:.4} of the time", share(&tenants[1]));
    end(tenants);
}

#[test]
fn a_limit_of_half_holds_for_a_lone_client_without_long_stalls() {
    // The promised two points of accuracy are tested on a machine without other work: grants follow the real clock.
    let _lock = exclusive();
    let node = Node::start("1\ncapped 0.5 0.5 8589934592\n");
    let tenants = busy(&node, &["capped"]);
    // The burst that a fresh token bucket allows is over.
    node.let_pass(SECOND);
    let measured = node.undisturbed(10 * SECOND);
    let (span, accuracy) = (measured.span, checks::TWO_POINTS + measured.taken);
    let pid = tenants[0].pid();
    let share = node.window(span).share_of_time(pid);
    checks::runs_in_each(&node.windows(span, 10), pid, measured.taken).unwrap();
    let stall = timeline::longest_gap(&node.timeline(span), &[pid], span.0, span.1);
    assert!(stall <= 200 * MS + measured.taken_ns, "did not run for {} ms", stall / MS);
    // What the same process gets from this machine without the limit.
    node.write_resources("1\ncapped 0.5 1.0 8589934592\n");
    node.let_pass(SECOND);
    let unlimited = node.undisturbed(3 * SECOND);
    let possible = node.window(unlimited.span).share_of_time(pid);
    assert!(possible + unlimited.taken > 0.5 + 2.0 * checks::TWO_POINTS, "{possible:.4} without a limit");
    assert!((share - 0.5).abs() <= accuracy, "share {share:.4} under a limit of 0.5");
    assert!(share >= 0.5 * possible - accuracy, "share {share:.4}, {possible:.4} without a limit");
    end(tenants);
}

#[test]
fn an_idle_clients_share_goes_to_the_others_in_proportion_to_their_requests() {
    // The promised two points of accuracy are tested on a machine without other work: grants follow the real clock.
    let _lock = exclusive();
    let node =
        Node::start("3\nsmall 0.2 1.0 8589934592\nlarge 0.3 1.0 8589934592\nidle 0.5 1.0 8589934592\n");
    let mut idle = node.tenant("idle", "tenant").start();
    idle.expect("ready");
    assert_eq!(idle.ask("launch 20 1000"), "launched");
    assert_eq!(idle.ask("sync"), "synced");
    let tenants = busy(&node, &["small", "large"]);
    let measured = node.undisturbed(8 * SECOND);
    let expected: [(&[i32], f64); 2] = [(&[tenants[0].pid()], 0.4), (&[tenants[1].pid()], 0.6)];
    checks::shares(&node.window(measured.span), &expected, 0.9, measured.taken).unwrap();
    // The idle client gets the GPU when it has work again.
    assert_eq!(idle.ask("launch 20 1000"), "launched");
    assert_eq!(idle.ask("sync"), "synced");
    assert_eq!(idle.ask("check"), "right");
    end(tenants);
    idle.finish().expect_success();
}

#[test]
fn a_lone_client_with_a_small_request_gets_the_whole_gpu() {
    // Part of the real time: other work on the machine would leave the GPU idle.
    let _lock = exclusive();
    let node = Node::start("2\nbe-a 0.3 1.0 8589934592\nbe-b 0.7 1.0 8589934592\n");
    let tenants = busy(&node, &["be-a"]);
    let measured = node.undisturbed(3 * SECOND);
    let share = node.window(measured.span).share_of_time(tenants[0].pid());
    assert!(share >= 0.9 - measured.taken, "alone, it had {share:.4} of the GPU's time");
    end(tenants);
}

#[test]
fn a_latency_critical_client_does_not_wait_for_the_token() {
    let _lock = shared();
    let node = Node::with(
        "clients:\n  - { name: service, request: 0.2, memory: 1Gi, class: latency-critical }\n  - { name: batch, request: 0.8, memory: 1Gi }\n",
    )
    .manager_arguments("--return-timeout-ms 60000")
    .start();
    // One kernel that holds the token of best effort for as long as it runs.
    let mut batch = node.tenant("batch", "tenant").start();
    batch.expect("ready");
    assert_eq!(batch.ask("launch 1 600000000"), "launched");
    let mut service = node.tenant("service", "tenant").start();
    service.expect("ready");
    for _ in 0..10 {
        assert_eq!(service.ask("launch 5 100"), "launched");
        assert_eq!(service.ask("sync"), "synced");
    }
    assert_eq!(service.ask("check"), "right");
    assert_eq!(node.row(&batch).kernels_completed, 0, "it must hold the token all the time");
    service.finish().expect_success();
}
