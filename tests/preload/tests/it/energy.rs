//! The energy that the manager attributes to clients, beside the account of the simulated GPU.

use sluice_preload_tests::tenant::{busy, end};
use sluice_preload_tests::{MIB, MS, Node, eventually, exclusive};

fn idle_joules(node: &Node) -> f64 {
    node.metrics().sum("sluice_idle_energy_joules_total", &[]).unwrap_or(0.0)
}

/// Waits until the manager has attributed so much more to the idle GPU.
fn let_idle(node: &Node, joules: f64) {
    let begin = idle_joules(node);
    eventually("energy of the idle GPU", || (idle_joules(node) >= begin + joules).then_some(()));
}

fn near(what: &str, found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= 0.05 * expected,
        "{what}: {found:.1} J, the GPU counted {expected:.1} J"
    );
}

#[test]
fn energy_of_clients_and_of_the_idle_gpu_is_that_of_the_gpus_own_account() {
    // Readings follow the real clock, and so does the simulated GPU.
    let _lock = exclusive();
    let clients = ["be-a", "be-b"];
    let node = Node::with("2\nbe-a 0.3 1.0 8589934592\nbe-b 0.7 1.0 8589934592\n").measuring_memory().start();
    // Readings begin with the first process.
    let mut idle = node.tenant("be-a", "tenant").start();
    idle.expect("ready");
    assert!(idle.ask(&format!("take alloc {}", 2 * MIB)).starts_with("took"), "attaches");
    let_idle(&node, 60.0);
    let joules = |client: &str| node.metric("sluice_energy_joules_total", client);
    assert_eq!(clients.map(joules), [0.0, 0.0]);
    let (idle_before, gpu_before) = (idle_joules(&node), node.ledger().gpu.energy_mj());
    let tenants = busy(&node, &clients, "2000 10");
    let pids: Vec<i32> = tenants.iter().map(|tenant| tenant.pid()).collect();
    node.let_pass(6_000 * MS);
    end(tenants);
    let_idle(&node, 60.0);
    let (idle_after, ledger) = (idle_joules(&node), node.ledger());
    let found = clients.map(joules);
    for ((client, joules), pid) in clients.iter().zip(found).zip(&pids) {
        let row = ledger.by_pid(*pid).expect("a row of the process");
        near(client, joules, row.energy_mj() as f64 / 1e3);
    }
    let total = found.iter().sum::<f64>() + idle_after - idle_before;
    near("all", total, (ledger.gpu.energy_mj() - gpu_before) as f64 / 1e3);
    assert!(found[1] > 1.5 * found[0], "shares of 0.3 and 0.7: {found:?}");
}
