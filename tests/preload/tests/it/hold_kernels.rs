//! Holds of latency-critical processes: when they come, when they end, and that nothing of the program's is the worse.

use sluice_preload_tests::recording_manager::{RecordingManager, Understands};
use sluice_preload_tests::{MS, Node, Tenant, shared, eventually};
use sluice_sim::ledger::ProcessLedger;

/// A node whose manager says of the company what the test says.
struct Stage {
    node: Node,
    manager: RecordingManager,
}

impl Stage {
    fn new(critical: bool, company: u64) -> Self {
        let node =
            Node::with("2\nlc 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n").without_manager().start();
        let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
        manager.say(critical, company);
        Self { node, manager }
    }

    fn start(&self, arguments: &str, hints: &str) -> Tenant {
        let tenant = self.node.tenant("lc", "hints").arguments(arguments);
        tenant.environment("SLUICE_HINTS", hints).start()
    }
}

fn with_company(part: &str) {
    let _lock = shared();
    let stage = Stage::new(true, 1);
    let mut tenant = stage.start(part, "auto");
    tenant.expect("holds 1 released 1");
    tenant.finish().expect_success();
}

#[test]
fn holds_are_released_and_are_no_launches_of_the_program() {
    let _lock = shared();
    let stage = Stage::new(true, 1);
    let mut tenant = stage.start("requests 200", "auto");
    tenant.expect("launches 600 of 600");
    tenant.expect("holds 1 released 1");
    tenant.finish().expect_success();
}

#[test]
fn who_may_not_hold_is_told_why() {
    let _lock = shared();
    for (critical, company, hints, answer) in
        [(false, 1, "auto", "answer 3"), (true, 0, "auto", "answer 4"), (true, 1, "off", "answer 11")]
    {
        let stage = Stage::new(critical, company);
        let mut tenant = stage.start("answer", hints);
        tenant.expect(answer);
        tenant.expect("holds 0 released 1");
        tenant.finish().expect_success();
    }
}

#[test]
fn a_hint_is_answered_as_the_process_stands() {
    with_company("answers");
}

#[test]
fn a_wait_for_everything_does_not_wait_for_the_hold() {
    with_company("waits");
}

#[test]
fn contexts_end_with_holds_out_and_new_ones_hold_again() {
    with_company("contexts");
}

#[test]
fn a_child_process_holds_nothing_and_its_parent_goes_on() {
    with_company("forks");
}

#[test]
fn nothing_is_held_in_a_capture() {
    with_company("captures");
}

#[test]
fn a_program_ends_with_a_hold_out() {
    let _lock = shared();
    let stage = Stage::new(true, 1);
    stage.start("exits", "auto").finish().expect_success();
}

#[test]
fn a_hold_that_no_request_follows_gets_the_gpu_and_ends_by_itself() {
    let _lock = shared();
    let stage = Stage::new(true, 1);
    let busy = stage.node.tenant("other", "busy").arguments("1000 4");
    let mut busy = busy.environment("SLUICE_HINTS", "off").start();
    busy.expect("ready");
    let mut tenant = stage.start("expires", "auto");
    tenant.expect("ready");
    let before = stage.node.row(&tenant);
    assert_eq!(tenant.ask("hint"), "hinted");
    let is_over = |row: &ProcessLedger| row.kernels_completed == before.kernels_completed + 2;
    let held = eventually("the end of the hold", || Some(stage.node.row(&tenant)).filter(is_over));
    let ns = held.kernel_ns - before.kernel_ns;
    assert!((100_000..3 * MS).contains(&ns), "held the GPU for {ns} ns");
    // The manager reads of it without anybody doing anything; what came before the hint was one hold within the budget.
    let counted =
        eventually("the hold's time", || Some(stage.manager.hold_ns()).filter(|all| *all >= ns * 9 / 10));
    assert!(counted <= ns + 2 * MS, "counted {counted} ns where the simulator saw {ns}");
    // A request so much later is another one, and releases its own hold if it has one.
    tenant.send("go on");
    tenant.expect("holds 1 released 0");
    tenant.finish().expect_success();
    busy.finish().expect_success();
}

#[test]
fn a_hint_far_ahead_takes_the_gpu_from_nobody_before_its_time() {
    let _lock = shared();
    let stage = Stage::new(true, 1);
    let mut tenant = stage.start("far", "api");
    tenant.expect("hinted");
    assert!(!stage.manager.is_busy(), "the request is a second away");
    tenant.send("go on");
    tenant.expect("requested");
    tenant.send("go on");
    tenant.expect("holds 1 released 1");
    tenant.finish().expect_success();
}

#[test]
fn holds_come_and_go_with_the_company() {
    let _lock = shared();
    let stage = Stage::new(true, 0);
    let mut tenant = stage.start("company", "auto");
    tenant.expect("ready");
    assert_eq!(tenant.ask("go"), "held 0 answer 4");
    stage.manager.say(true, 1);
    let held = (0..1000).any(|_| tenant.ask("go") == "held 1 answer 0");
    assert!(held, "the context was never made ready");
    stage.manager.say(true, 0);
    assert_eq!(tenant.ask("go"), "held 0 answer 4");
    tenant.finish().expect_success();
}

/// Where there is no hold, nobody having the GPU, a hint has others hold back what they have not begun.
#[test]
fn a_hint_closes_the_gates_of_others_before_anything_of_the_request_is_there() {
    let _lock = shared();
    let clients = "clients:\n  - { name: service, request: 0.2, memory: 1Gi, class: latency-critical }\n  - { name: batch, request: 0.8, memory: 1Gi }\n";
    let node = Node::with(clients).manager_arguments("--gates auto --controls off").start();
    let mut other = node.tenant("batch", "tenant").start();
    other.expect("ready");
    assert_eq!(other.ask("launch 1 100"), "launched");
    assert_eq!(other.ask("sync"), "synced");
    let mut tenant = node.tenant("service", "hints").arguments("announces").start();
    tenant.expect("ready");
    const ALONE: &str = "hinted 4";
    eventually("the other one's token to be given back", || (tenant.ask("hint") == ALONE).then_some(()));
    let is_open = || node.metrics().sum("sluice_gate_closed", &[]) == Some(0.0);
    eventually("the gates to be open", || is_open().then_some(()));
    let changes = |to: &str| {
        let metrics = node.metrics();
        let changes = metrics.sum("sluice_gate_changes_total", &[&format!("to=\"{to}\"")]);
        changes.unwrap_or_else(|| panic!("no changes to {to} in {metrics:?}"))
    };
    let (closed, before) = (changes("closed"), node.row(&tenant).kernels_completed);
    // One that the manager comes to read late on a busy machine is not believed any more, and none while another is.
    eventually("the gates to be closed", || {
        assert_eq!(tenant.ask("hint"), ALONE);
        (changes("closed") > closed).then_some(())
    });
    eventually("the gates to be opened again, as no request came", || is_open().then_some(()));
    assert_eq!(
        node.row(&tenant).kernels_completed,
        before,
        "nothing of a request was there, nor was anything held"
    );
    assert_eq!(other.ask("launch 1 100"), "launched");
    assert_eq!(other.ask("sync"), "synced");
    tenant.finish().expect_success();
    other.finish().expect_success();
}
