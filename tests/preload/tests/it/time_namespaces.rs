//! Programs in a time namespace, as `unshare --time` and CRIU make it: their clocks are ahead of the manager's or behind.

use sluice_hook_core::outcome::Bypass;
use sluice_preload_tests::{MIB, Node, Tenant, eventually, shared};
use std::process::Command;

/// The limit of the client.
const LIMIT: u64 = 1_024 * MIB;

/// Whether this machine makes time namespaces for the test.
fn are_available() -> bool {
    Command::new("unshare").args(["--time", "--fork", "true"]).status().is_ok_and(|status| status.success())
}

fn shell(offset: i64) -> String {
    format!("exec unshare --time --monotonic {offset} --boottime {offset} --fork \"$@\"")
}

#[test]
fn program_in_a_time_namespace_is_governed() {
    let _lock = shared();
    if !are_available() {
        return;
    }
    // Behind by less than this machine runs: a clock does not begin before 0.
    for offset in [100_000, -2] {
        let node = Node::start(&format!("2\nmain 0.5 1.0 {LIMIT}\nrival 0.5 1.0 {LIMIT}\n"));
        let mut rival = node.tenant("rival", "busy").arguments("1000 4").start();
        rival.expect("ready");
        let plain = node.tenant("main", "bypass").arguments("plain").through_shell(&shell(offset));
        let ending = plain.start().finish().expect_success();
        let counters: Vec<u64> =
            ending.lines[0].split(' ').map(|counter| counter.parse().expect("a number")).collect();
        let (grants, bypassed) = (counters[2], &counters[4..]);
        assert!(grants >= 1, "{offset} s: {counters:?}");
        assert_eq!(bypassed, vec![0; Bypass::ALL.len()], "{offset} s");
        let mut tenant: Tenant = node.tenant("main", "tenant").through_shell(&shell(offset)).start();
        tenant.expect("ready");
        assert_eq!(tenant.ask(&format!("take alloc {}", LIMIT + MIB)), "refused 2", "{offset} s");
        eventually("more grants", || {
            assert_eq!(tenant.ask("spin 1 1000"), "launched");
            assert_eq!(tenant.ask("sync"), "synced");
            (node.metric("sluice_grants_total", "main") >= 5.0).then_some(())
        });
        assert_eq!(tenant.ask(&format!("take alloc {}", LIMIT + MIB)), "refused 2", "{offset} s");
        tenant.finish().expect_success();
    }
}
