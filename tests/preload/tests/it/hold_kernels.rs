//! Hold kernels of latency-critical processes: when they start, when they end, and that they do not disturb the program.

use sluice_preload_tests::recording_manager::{RecordingManager, Understands};
use sluice_preload_tests::{MS, Node, Tenant, eventually, shared};
use sluice_sim::ledger::ProcessLedger;

/// A node whose manager reports the contenders that the test sets.
struct HoldBed {
    node: Node,
    manager: RecordingManager,
}

impl HoldBed {
    fn new(critical: bool, contenders: u64) -> Self {
        let node =
            Node::with("2\nlc 0.5 1.0 8589934592\nother 0.5 1.0 8589934592\n").without_manager().start();
        let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
        manager.set_contenders(critical, contenders);
        Self { node, manager }
    }

    fn start(&self, arguments: &str, hints: &str) -> Tenant {
        let tenant = self.node.tenant("lc", "hints").arguments(arguments);
        tenant.environment("SLUICE_HINTS", hints).start()
    }
}

fn with_contender(part: &str) {
    let _lock = shared();
    let bed = HoldBed::new(true, 1);
    let mut tenant = bed.start(part, "auto");
    tenant.expect("holds 1 released 1");
    tenant.finish().expect_success();
}

#[test]
fn hold_kernels_are_released_and_not_counted_as_launches() {
    let _lock = shared();
    let bed = HoldBed::new(true, 1);
    let mut tenant = bed.start("requests 200", "auto");
    tenant.expect("launches 600 of 600");
    tenant.expect("holds 1 released 1");
    tenant.finish().expect_success();
}

#[test]
fn a_refused_hold_reports_its_reason() {
    let _lock = shared();
    for (critical, contenders, hints, answer) in
        [(false, 1, "auto", "answer 3"), (true, 0, "auto", "answer 4"), (true, 1, "off", "answer 11")]
    {
        let bed = HoldBed::new(critical, contenders);
        let mut tenant = bed.start("answer", hints);
        tenant.expect(answer);
        tenant.expect("holds 0 released 1");
        tenant.finish().expect_success();
    }
}

#[test]
fn a_hint_is_answered_according_to_the_processs_state() {
    with_contender("answers");
}

#[test]
fn a_wait_for_everything_does_not_wait_for_the_hold() {
    with_contender("waits");
}

#[test]
fn contexts_end_with_hold_kernels_running_and_new_contexts_hold_again() {
    with_contender("contexts");
}

#[test]
fn a_child_process_holds_nothing_and_its_parent_continues() {
    with_contender("forks");
}

#[test]
fn nothing_is_held_in_a_capture() {
    with_contender("captures");
}

#[test]
fn a_program_ends_with_a_hold_kernel_running() {
    let _lock = shared();
    let bed = HoldBed::new(true, 1);
    bed.start("exits", "auto").finish().expect_success();
}

#[test]
fn a_hold_without_a_request_gets_the_gpu_and_ends_by_itself() {
    let _lock = shared();
    let bed = HoldBed::new(true, 1);
    let busy = bed.node.tenant("other", "busy").arguments("1000 4");
    let mut busy = busy.environment("SLUICE_HINTS", "off").start();
    busy.expect("ready");
    let mut tenant = bed.start("expires", "auto");
    tenant.expect("ready");
    // The hold behind the last request ends by itself, too.
    let runs_nothing = |row: &ProcessLedger| row.kernels_completed == row.kernels_submitted;
    let before =
        eventually("the end of the hold before it", || Some(bed.node.row(&tenant)).filter(runs_nothing));
    assert_eq!(tenant.ask("hint"), "hinted");
    let is_over = |row: &ProcessLedger| row.kernels_completed > before.kernels_completed && runs_nothing(row);
    let held = eventually("the end of the hold", || Some(bed.node.row(&tenant)).filter(is_over));
    let ns = held.kernel_ns - before.kernel_ns;
    assert!((100_000..3 * MS).contains(&ns), "held the GPU for {ns} ns");
    // The report page has the time without a further call; before the hint there was one hold within the budget.
    let counted =
        eventually("the hold's time", || Some(bed.manager.hold_ns()).filter(|all| *all >= ns * 9 / 10));
    assert!(counted <= ns + 2 * MS, "counted {counted} ns where the simulator saw {ns}");
    // A request so much later is another request, and releases its own hold if it has one.
    tenant.send("go on");
    tenant.expect("holds 1 released 0");
    tenant.finish().expect_success();
    busy.finish().expect_success();
}

#[test]
fn an_early_hint_does_not_take_the_gpu_before_its_time() {
    let _lock = shared();
    let bed = HoldBed::new(true, 1);
    let mut tenant = bed.start("far", "api");
    tenant.expect("hinted");
    assert!(!bed.manager.is_busy(), "the request is a second away");
    tenant.send("go on");
    tenant.expect("requested");
    tenant.send("go on");
    tenant.expect("holds 1 released 1");
    tenant.finish().expect_success();
}

#[test]
fn hold_kernels_start_and_stop_with_the_contenders() {
    let _lock = shared();
    let bed = HoldBed::new(true, 0);
    let mut tenant = bed.start("contenders", "auto");
    tenant.expect("ready");
    assert_eq!(tenant.ask("go"), "held 0 answer 4");
    bed.manager.set_contenders(true, 1);
    let held = (0..1000).any(|_| tenant.ask("go") == "held 1 answer 0");
    assert!(held, "the context was never made ready");
    bed.manager.set_contenders(true, 0);
    assert_eq!(tenant.ask("go"), "held 0 answer 4");
    tenant.finish().expect_success();
}

/// Otherwise the hold kernel would keep other clients off the GPU, and the process would count as one with work.
#[test]
fn no_hold_kernel_runs_while_a_request_waits_for_its_grant() {
    let _lock = shared();
    let bed = HoldBed::new(true, 1);
    let mut tenant = bed.start("announces", "api");
    tenant.expect("ready");
    let held = (0..1000).any(|_| tenant.ask("request") == "requested" && tenant.ask("begin") == "begun 0");
    assert!(held, "the context was never made ready");
    bed.manager.revoke();
    tenant.send("request");
    eventually("a launch waits for a grant", || (bed.manager.unanswered() > 0).then_some(()));
    assert!(!bed.manager.is_busy(), "a hold kernel stays while the request waits");
    bed.manager.hang_up();
    tenant.expect("requested");
    tenant.finish().expect_success();
}

#[test]
fn no_hold_kernel_begins_without_a_grant() {
    let _lock = shared();
    let bed = HoldBed::new(true, 1);
    let mut tenant = bed.start("announces", "api");
    tenant.expect("ready");
    let held = (0..1000).any(|_| tenant.ask("hint") == "hinted 0" && tenant.ask("request") == "requested");
    assert!(held, "the context was never made ready");
    bed.manager.revoke();
    assert_eq!(tenant.ask("hint"), "hinted 9");
    bed.manager.hang_up();
    tenant.finish().expect_success();
}
