//! Effects of killing a process: a tenant, the token holder, the pod-manager.

use nix::sys::signal::Signal;
use sluice_preload_tests::host_time::HostTime;
use sluice_preload_tests::{MIB, MS, Node, Tenant, eventually, exclusive, shared};

const SECOND: u64 = 1_000 * MS;

fn busy(node: &Node, client: &str, on_loss: &str) -> Tenant {
    let options = node.tenant(client, "busy").arguments("1000 8");
    let mut tenant = options.environment("SLUICE_ON_MANAGER_LOSS", on_loss).start();
    tenant.expect("ready");
    node.when_completed(&tenant, 16);
    tenant
}

#[test]
fn when_the_token_holder_is_killed_the_others_run_and_its_memory_is_free() {
    // The time until the next grant is the real clock's.
    let _lock = exclusive();
    // The return timeout is the longest possible one, so that the holder's death ends its grant.
    let node = Node::with("2\nholder 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n")
        .manager_arguments("--return-timeout-ms 60000")
        .start();
    let mut holder = node.tenant("holder", "tenant").start();
    holder.expect("ready");
    assert!(holder.ask(&format!("take alloc {}", 100 * MIB)).starts_with("took"));
    // One kernel that lasts far longer than any grant: while it runs, the token cannot be returned.
    assert_eq!(holder.ask("launch 1 600000000"), "launched");
    let mut other = node.tenant("other", "busy").arguments("1000 8").start();
    other.expect("ready");
    node.let_pass(300 * MS);
    assert_eq!(node.row(&other).kernels_completed, 0, "the token was with the holder");
    let host = HostTime::begin();
    holder.signal(Signal::SIGKILL);
    assert_eq!(holder.ending().signal(), Some(9));
    node.when_completed(&other, 100);
    let taken = host.taken_ns();
    let span = (0, node.ledger().gpu.now_ns);
    let timeline = node.timeline(span);
    let killed = timeline.iter().filter(|i| i.pid == holder.pid()).map(|i| i.end_ns).max().unwrap();
    let next = timeline.iter().filter(|i| i.pid == other.pid()).map(|i| i.start_ns).min().unwrap();
    assert!(next >= killed, "the other ran while the holder had the token");
    // The product takes milliseconds; the bound lies far above them and far below the return timeout.
    assert!(next - killed <= SECOND + taken, "the other did not run for {} ms more", (next - killed) / MS);
    assert_eq!(node.metric("sluice_grants_not_returned_total", "holder"), 0.0, "its grant timed out");
    let row = node.row(&holder);
    assert!(row.ended && row.memory_bytes == 0, "{row:?}");
    eventually("the holder's memory", || {
        (node.metric("sluice_memory_used_bytes", "holder") == 0.0).then_some(())
    });
    other.finish().expect_success();
}

#[test]
fn a_stopped_token_holder_that_is_killed_is_no_longer_waited_for() {
    let _lock = shared();
    let node = Node::start("2\nholder 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n");
    let holder = busy(&node, "holder", "open");
    let other = busy(&node, "other", "open");
    holder.signal(Signal::SIGSTOP);
    holder.signal(Signal::SIGKILL);
    let before = node.row(&other).kernels_completed;
    node.when_completed(&other, before + 500);
    other.finish().expect_success();
}

#[test]
fn fail_open_tenants_run_without_a_manager_and_attach_again_when_it_returns() {
    let _lock = shared();
    let mut node = Node::start("2\nopen-a 0.3 1.0 8589934592\nopen-b 0.7 1.0 8589934592\n");
    let mut memory_holder = node.tenant("open-a", "tenant").start();
    memory_holder.expect("ready");
    assert!(memory_holder.ask(&format!("take alloc {}", 100 * MIB + 7)).starts_with("took"));
    let tenants = [busy(&node, "open-a", "open"), busy(&node, "open-b", "open")];
    let used = node.metric("sluice_memory_used_bytes", "open-a");
    assert!(used >= (100 * MIB + 7) as f64);
    node.kill_manager();
    for tenant in &tenants {
        let before = node.row(tenant).kernels_completed;
        node.when_completed(tenant, before + 200);
    }
    node.start_manager();
    for client in ["open-a", "open-b"] {
        eventually("tokens of the new manager", || {
            (node.metric("sluice_grants_total", client) >= 2.0).then_some(())
        });
    }
    eventually("memory to be declared again", || {
        (node.metric("sluice_memory_used_bytes", "open-a") == used).then_some(())
    });
    for tenant in tenants {
        tenant.finish().expect_success();
    }
    memory_holder.finish().expect_success();
}

#[test]
fn fail_closed_tenants_hold_without_a_manager_until_it_returns() {
    let _lock = shared();
    let mut node =
        Node::with("1\nclosed 0.5 1.0 8589934592\n").manager_arguments("--on-manager-loss closed").start();
    let tenant = busy(&node, "closed", "closed");
    node.kill_manager();
    // After the last grant has expired nothing is launched.
    node.let_pass(SECOND);
    let held = node.row(&tenant).kernels_submitted;
    node.let_pass(SECOND);
    assert_eq!(node.row(&tenant).kernels_submitted, held, "it launched without a manager");
    node.start_manager();
    node.when_completed(&tenant, held + 200);
    assert!(node.metric("sluice_grants_total", "closed") >= 1.0);
    tenant.finish().expect_success();
}

#[test]
fn a_tenant_started_before_its_manager_runs_and_is_governed_later() {
    let _lock = shared();
    let mut node = Node::with("1\nearly 0.5 0.5 8589934592\n").without_manager().start();
    let tenant = busy(&node, "early", "open");
    node.start_manager();
    eventually("tokens of the manager", || {
        (node.metric("sluice_grants_total", "early") >= 2.0).then_some(())
    });
    tenant.finish().expect_success();
}

/// A tenant that never returns its grant does not keep the token for ever.
#[test]
fn an_unreturned_grant_is_waited_for_until_the_return_timeout() {
    let _lock = shared();
    let node = Node::with("2\nholder 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n")
        .manager_arguments("--return-timeout-ms 500")
        .start();
    let mut holder = node.tenant("holder", "tenant").start();
    holder.expect("ready");
    assert_eq!(holder.ask("launch 1 600000000"), "launched");
    let other = busy(&node, "other", "open");
    assert!(node.metric("sluice_grants_not_returned_total", "holder") >= 1.0);
    other.finish().expect_success();
}
