//! What remains when a process is killed: a tenant, the holder of the token, the pod-manager.

use nix::sys::signal::Signal;
use sluice_preload_tests::{MIB, MS, Node, Tenant, alone, eventually};

const SECOND: u64 = 1_000 * MS;

fn busy(node: &Node, client: &str, on_loss: &str) -> Tenant {
    let options = node.tenant(client, "busy").arguments("1000 8");
    let mut tenant = options.environment("SLUICE_ON_MANAGER_LOSS", on_loss).start();
    tenant.expect("ready");
    node.when_completed(&tenant, 16);
    tenant
}

#[test]
fn when_the_holder_of_the_token_is_killed_the_others_go_on_and_its_memory_is_back() {
    let _lock = exclusive();
    let node = Node::start("2\nholder 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n");
    let mut holder = node.tenant("holder", "tenant").start();
    holder.expect("ready");
    assert!(holder.ask(&format!("take alloc {}", 100 * MIB)).starts_with("took"));
    // One kernel that lasts far longer than any grant: as long as it runs, the token cannot come back.
    assert_eq!(holder.ask("launch 1 600000000"), "launched");
    let mut other = node.tenant("other", "busy").arguments("1000 8").start();
    other.expect("ready");
    node.let_pass(300 * MS);
    assert_eq!(node.row(&other).kernels_completed, 0, "the token was with the holder");
    holder.signal(Signal::SIGKILL);
    assert_eq!(holder.ending().signal(), Some(9));
    node.when_completed(&other, 100);
    let span = (0, node.ledger().gpu.now_ns);
    let timeline = node.timeline(span);
    let killed = timeline.iter().filter(|i| i.pid == holder.pid()).map(|i| i.end_ns).max().unwrap();
    let next = timeline.iter().filter(|i| i.pid == other.pid()).map(|i| i.start_ns).min().unwrap();
    assert!(next >= killed, "the other ran while the holder had the token");
    assert!(next - killed <= 50 * MS, "the other stood still for {} ms more", (next - killed) / MS);
    let row = node.row(&holder);
    assert!(row.ended && row.memory_bytes == 0, "{row:?}");
    eventually("the holder's memory", || {
        (node.metric("sluice_memory_used_bytes", "holder") == 0.0).then_some(())
    });
    other.finish().expect_success();
}

#[test]
fn a_holder_that_is_stopped_in_its_tracks_is_waited_for_no_longer_once_killed() {
    let _lock = exclusive();
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
fn without_a_manager_fail_open_tenants_go_on_and_attach_again_when_it_returns() {
    let _lock = exclusive();
    let mut node = Node::start("2\nopen-a 0.3 1.0 8589934592\nopen-b 0.7 1.0 8589934592\n");
    let mut keeper = node.tenant("open-a", "tenant").start();
    keeper.expect("ready");
    assert!(keeper.ask(&format!("take alloc {}", 100 * MIB + 7)).starts_with("took"));
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
    keeper.finish().expect_success();
}

#[test]
fn without_a_manager_fail_closed_tenants_hold_until_it_returns() {
    let _lock = exclusive();
    let mut node =
        Node::with("1\nclosed 0.5 1.0 8589934592\n").manager_arguments("--on-manager-loss closed").start();
    let tenant = busy(&node, "closed", "closed");
    node.kill_manager();
    // What the last grant allowed is soon done; from then on nothing is launched.
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
fn a_tenant_that_starts_before_its_manager_computes_and_is_governed_once_there_is_one() {
    let _lock = exclusive();
    let mut node = Node::with("1\nearly 0.5 0.5 8589934592\n").without_manager().start();
    let tenant = busy(&node, "early", "open");
    node.start_manager();
    eventually("tokens of the manager", || {
        (node.metric("sluice_grants_total", "early") >= 2.0).then_some(())
    });
    tenant.finish().expect_success();
}

/// A tenant that keeps the GPU past all bounds cannot keep the token for ever.
#[test]
fn a_grant_that_does_not_come_back_is_waited_for_only_so_long() {
    let _lock = exclusive();
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
