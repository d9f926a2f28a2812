//! Turns that the GPU keeps, under the real manager: channel groups of tenants are stopped and started from outside. The witness
//! is the simulated GPU's own ledger.

use sluice_preload_tests::{MS, Node, Tenant, alone, checks, http};

const SECOND: u64 = 1_000 * MS;

fn node(resources: &str) -> Node {
    Node::with(resources).manager_arguments("--controls simulated").start()
}

/// Starts busy processes, one for each name, and waits until all of them have run kernels.
fn busy(node: &Node, clients: &[&str]) -> Vec<Tenant> {
    let mut tenants: Vec<Tenant> =
        clients.iter().map(|client| node.tenant(client, "busy").arguments("1000 8").start()).collect();
    for tenant in &mut tenants {
        tenant.expect("ready");
    }
    for tenant in &tenants {
        node.when_completed(tenant, 16);
    }
    tenants
}

fn end(tenants: Vec<Tenant>) {
    for tenant in tenants {
        tenant.finish().expect_success();
    }
}

#[test]
fn two_busy_clients_share_by_turns_as_their_requests_say() {
    let _turn = alone();
    let node = node("2\nbe-a 0.3 1.0 8589934592\nbe-b 0.7 1.0 8589934592\n");
    let tenants = busy(&node, &["be-a", "be-b"]);
    node.let_pass(2 * SECOND);
    let span = node.let_pass(20 * SECOND);
    let window = node.window(span);
    checks::shares(&window, &[(&[tenants[0].pid()], 0.3), (&[tenants[1].pid()], 0.7)], 0.95).unwrap();
    let metrics = node.metrics();
    assert_eq!(http::sample(&metrics, "sluice_level", &["level=\"turn\""]), Some(2.0));
    assert_eq!(http::sample(&metrics, "sluice_steering_given_up_total", &[]), Some(0.0));
    let turns = http::sample(&metrics, "sluice_turns_total", &[]).unwrap();
    assert!((100.0..1000.0).contains(&turns), "{turns} turns in some twenty seconds");
    println!("{window:?}");
    end(tenants);
}
