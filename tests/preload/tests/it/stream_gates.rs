//! Stream gates: while a gate is closed, submitted and new work of the process waits. The simulator's ledger shows it; the programs check
//! that no work is lost, repeated or reordered. Where a check counts kernels, the GPU's clock is stepped, so that the count does not depend
//! on the host.

use sluice_comm::page::report::GATES_DEVICE;
use sluice_preload_tests::recording_manager::{RecordingManager, Understands};
use sluice_preload_tests::{MS, Node, NodeOptions, Tenant, eventually, shared};

struct GateBed {
    node: Node,
    manager: RecordingManager,
}

impl GateBed {
    fn new() -> Self {
        Self::on("")
    }

    fn on(simulator: &str) -> Self {
        Self::with(|node| node.simulator_arguments(simulator).stepped())
    }

    fn with(options: impl FnOnce(NodeOptions) -> NodeOptions) -> Self {
        let node = options(Node::with("1\nmain 0.5 1.0 8589934592\n").without_manager()).start();
        let manager = RecordingManager::start(&node.socket(), Understands::Contexts);
        Self { node, manager }
    }

    fn start(&self, program: &str, arguments: &str) -> Tenant {
        let mut tenant = self.node.tenant("main", program).arguments(arguments).start();
        tenant.expect("ready");
        tenant
    }

    /// Kernels that complete while the GPU's clock goes on by 20 ms.
    fn completed(&self, tenant: &Tenant) -> u64 {
        let before = self.node.row(tenant).kernels_completed;
        self.node.let_pass(20 * MS);
        self.node.row(tenant).kernels_completed - before
    }

    fn check_stopped(&self, tenant: &Tenant) {
        eventually("the process to stop", || (self.completed(tenant) == 0).then_some(()));
        let before = self.node.row(tenant).kernels_completed;
        // Longer than all that is on the GPU takes; then time for the process to submit more.
        self.node.advance(1_000 * MS);
        self.node.let_pass(20 * MS);
        let after = self.node.row(tenant).kernels_completed;
        assert_eq!(after, before, "it must stay stopped while the gate is closed");
    }

    fn check_runs(&self, tenant: &Tenant) {
        let seen = self.node.row(tenant).kernels_completed;
        self.node.when_completed(tenant, seen + 100);
    }
}

#[test]
fn a_process_stops_while_its_gate_is_closed_and_resumes_when_it_opens() {
    let _lock = shared();
    for (simulator, program, arguments) in
        [("", "preempt_gate", "200"), ("--mem-ops off", "preempt_gate", "200"), ("", "busy", "200 8")]
    {
        let bed = GateBed::on(simulator);
        bed.manager.gates(Some(false));
        let mut tenant = bed.start(program, arguments);
        for _ in 0..3 {
            bed.check_runs(&tenant);
            bed.manager.gates(Some(true));
            bed.check_stopped(&tenant);
            bed.manager.gates(Some(false));
        }
        bed.check_runs(&tenant);
        tenant.close_input();
        tenant.ending().expect_success();
    }
}

#[test]
fn a_running_process_gets_gates_and_loses_them_again() {
    let _lock = shared();
    let bed = GateBed::new();
    let tenant = bed.start("preempt_gate", "200");
    bed.check_runs(&tenant);
    bed.manager.gates(Some(true));
    bed.check_stopped(&tenant);
    bed.manager.gates(None);
    bed.check_runs(&tenant);
    tenant.finish().expect_success();
}

#[test]
fn a_process_gets_gates_once_the_driver_has_memory_for_them() {
    let _lock = shared();
    let bed = GateBed::new();
    bed.manager.gates(Some(false));
    let tenant = bed.start("preempt_gate", "200 4");
    bed.node.when("its gates to hold back what is on the GPU", |_| {
        (bed.manager.reported(|report| report.gates()) == GATES_DEVICE).then_some(())
    });
    bed.manager.gates(Some(true));
    bed.check_stopped(&tenant);
    bed.manager.gates(None);
    bed.check_runs(&tenant);
    tenant.finish().expect_success();
}

#[test]
fn gates_that_the_driver_keeps_refusing_are_tried_ever_more_rarely() {
    let _lock = shared();
    let bed = GateBed::new();
    bed.manager.gates(Some(false));
    let tenant = bed.start("preempt_gate", "200 60");
    bed.manager.gates(Some(true));
    // The word is read again each 20 ms while gates are closed: with an attempt each time the refusals would be used up by now.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_ne!(
        bed.manager.reported(|report| report.gates()),
        GATES_DEVICE,
        "there were more than 60 attempts"
    );
    bed.manager.gates(None);
    tenant.finish().expect_success();
}

#[test]
fn work_behind_a_closed_gate_is_reported_as_pending() {
    let _lock = shared();
    let bed = GateBed::new();
    bed.manager.gates(Some(false));
    let mut tenant = bed.start("tenant", "");
    assert_eq!(tenant.ask("launch 1 100"), "launched");
    assert_eq!(tenant.ask("sync"), "synced");
    bed.node.when("the process to be idle", |_| (!bed.manager.is_busy()).then_some(()));
    bed.manager.gates(Some(true));
    // The GPU is empty, so no kernel waits there: the gate is closed once a new kernel does not run.
    let mut launched = 1;
    eventually("the gate to be shut", || {
        assert_eq!(tenant.ask("launch 1 100"), "launched");
        launched += 1;
        bed.node.let_pass(20 * MS);
        (bed.node.row(&tenant).kernels_completed < launched).then_some(())
    });
    let reported = bed.manager.busy_ns();
    bed.node.let_pass(100 * MS);
    assert!(bed.manager.is_busy(), "it has work");
    assert_eq!(bed.manager.busy_ns(), reported, "none of it has ended");
    bed.manager.gates(Some(false));
    assert_eq!(tenant.ask("sync"), "synced");
    tenant.finish().expect_success();
}

#[test]
fn work_of_a_destroyed_stream_stays_behind_the_closed_gate_and_is_reported_as_pending() {
    /// Longer than the time after which a stream runs again that nothing keeps stopped (250 ms).
    const LONGER_THAN_A_LEASE: std::time::Duration = std::time::Duration::from_millis(600);
    let _lock = shared();
    let bed = GateBed::new();
    bed.manager.gates(Some(false));
    let mut tenant = bed.start("ended_stream", "100");
    bed.manager.gates(Some(true));
    let mut launched = 0;
    eventually("the gate to be shut", || {
        assert_eq!(tenant.ask("launch"), "launched");
        launched += 1;
        bed.node.let_pass(20 * MS);
        (bed.node.row(&tenant).kernels_completed < launched).then_some(())
    });
    assert_eq!(tenant.ask("end"), "ended");
    std::thread::sleep(LONGER_THAN_A_LEASE);
    bed.node.let_pass(100 * MS);
    assert!(bed.node.row(&tenant).kernels_completed < launched, "it ran behind the closed gate");
    assert!(bed.manager.is_busy(), "it has work");
    bed.manager.gates(Some(false));
    bed.node.when_completed(&tenant, launched);
    tenant.finish().expect_success();
}

#[test]
fn gates_open_when_the_manager_is_gone() {
    check_gates_open_after(|bed| bed.manager.hang_up());
}

#[test]
fn gates_open_when_the_manager_is_silent() {
    check_gates_open_after(|bed| bed.manager.beat_once());
}

/// Work behind closed gates runs after the manager is lost in this way.
fn check_gates_open_after(loss: impl FnOnce(&GateBed)) {
    let _lock = shared();
    let bed = GateBed::new();
    let tenant = bed.start("preempt_gate", "200");
    bed.check_runs(&tenant);
    bed.manager.gates(Some(true));
    bed.check_stopped(&tenant);
    loss(&bed);
    bed.check_runs(&tenant);
    tenant.finish().expect_success();
}

#[test]
fn a_process_killed_behind_a_closed_gate_leaves_nothing() {
    let _lock = shared();
    let bed = GateBed::new();
    let tenant = bed.start("preempt_gate", "200");
    bed.check_runs(&tenant);
    bed.manager.gates(Some(true));
    bed.check_stopped(&tenant);
    drop(tenant);
    bed.manager.gates(None);
    let next = bed.start("busy", "200 8");
    bed.check_runs(&next);
    next.finish().expect_success();
}

#[test]
fn a_process_started_behind_a_closed_gate_waits() {
    let _lock = shared();
    let bed = GateBed::new();
    bed.manager.gates(Some(true));
    let mut tenant = bed.node.tenant("main", "preempt_gate").arguments("200").start();
    bed.node.when("its announcement", |_| (bed.manager.announcements() > 0).then_some(()));
    bed.check_stopped(&tenant);
    bed.manager.gates(Some(false));
    tenant.expect("ready");
    bed.check_runs(&tenant);
    tenant.finish().expect_success();
}

#[test]
fn a_latency_critical_process_has_no_gates() {
    let _lock = shared();
    let bed = GateBed::new();
    bed.manager.set_contenders(true, 1);
    bed.manager.gates(Some(true));
    let tenant = bed.start("preempt_gate", "200");
    (0..5).for_each(|_| bed.check_runs(&tenant));
    assert!(bed.completed(&tenant) > 0);
    tenant.finish().expect_success();
}

/// Runs a program to its end while the gate opens and closes all the time. A `strict` driver ends it when it uses a destroyed handle.
fn run_under_gates(program: &str, arguments: &str, strict: bool) {
    let _lock = shared();
    // On the real clock: no kernel is counted, and the program's threads meet the gates at all stages of their calls.
    let bed = GateBed::with(|node| node);
    let mut tenant = bed.node.tenant("main", program).arguments(arguments);
    if strict {
        tenant = tenant.environment("SLUICE_SIM_STRICT", "20");
    }
    let mut tenant = tenant.start();
    let waiting = std::thread::spawn(move || tenant.ending());
    for round in 0u32.. {
        bed.manager.gates(if round % 7 == 6 { None } else { Some(round.is_multiple_of(2)) });
        if waiting.is_finished() {
            break;
        }
        bed.node.let_pass(u64::from(round % 5) * MS);
    }
    waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).expect_success();
}

#[test]
fn programs_give_the_same_results_while_the_gate_opens_and_closes() {
    for (program, arguments) in [
        ("streams", "perthread"),
        ("streams", "destroyed"),
        ("streams", "contexts"),
        ("capture", "global 4"),
        ("capture", "relaxed 4"),
        ("launches", "kernel 300"),
        ("launches", "cooperative 300"),
        ("launches", "ex 300"),
        ("launches", "graph 300"),
        ("launches", "ptsz 300"),
        ("threads", "100 50"),
        ("forks", ""),
    ] {
        eprintln!("{program} {arguments}");
        run_under_gates(program, arguments, false);
    }
}

#[test]
fn no_destroyed_handle_is_used_while_the_gate_opens_and_closes() {
    for arguments in ["perthread", "destroyed", "contexts", "primary", "released"] {
        eprintln!("streams {arguments}");
        run_under_gates("streams", arguments, true);
    }
}
