//! A manager's gate: what a process has submitted and what it submits stands still while it is shut. The simulator's ledger
//! is the witness that it does; the programs check that nothing was lost, done twice or out of order.

use sluice_comm::page::report::GATES_DEVICE;
use sluice_preload_tests::recording_manager::{RecordingManager, Understands};
use sluice_preload_tests::{MS, Node, Tenant, shared, eventually};

struct Stage {
    node: Node,
    manager: RecordingManager,
}

impl Stage {
    fn new() -> Self {
        Self::on("")
    }

    fn on(simulator: &str) -> Self {
        let resources = "1\nmain 0.5 1.0 8589934592\n";
        let node = Node::with(resources).without_manager().simulator_arguments(simulator).start();
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

    fn stands(&self, tenant: &Tenant) {
        eventually("the process to stand", || (self.completed(tenant) == 0).then_some(()));
        assert_eq!(self.completed(tenant), 0, "it stands as long as the gate is shut");
    }

    fn runs(&self, tenant: &Tenant) {
        let seen = self.node.row(tenant).kernels_completed;
        self.node.when_completed(tenant, seen + 100);
    }
}

#[test]
fn a_process_stands_while_its_gate_is_shut_and_goes_on_when_it_is_opened() {
    let _lock = shared();
    for (simulator, program, arguments) in
        [("", "preempt_gate", "200"), ("--mem-ops off", "preempt_gate", "200"), ("", "busy", "200 8")]
    {
        let stage = Stage::on(simulator);
        stage.manager.gates(Some(false));
        let mut tenant = stage.start(program, arguments);
        for _ in 0..3 {
            stage.runs(&tenant);
            stage.manager.gates(Some(true));
            stage.stands(&tenant);
            stage.manager.gates(Some(false));
        }
        stage.runs(&tenant);
        tenant.close_input();
        tenant.ending().expect_success();
    }
}

#[test]
fn a_process_that_runs_without_gates_is_given_them_and_loses_them_again() {
    let _lock = shared();
    let stage = Stage::new();
    let tenant = stage.start("preempt_gate", "200");
    stage.runs(&tenant);
    stage.manager.gates(Some(true));
    stage.stands(&tenant);
    stage.manager.gates(None);
    stage.runs(&tenant);
    tenant.finish().expect_success();
}

#[test]
fn a_process_has_its_gates_when_the_driver_has_memory_for_them_again() {
    let _lock = shared();
    let stage = Stage::new();
    stage.manager.gates(Some(false));
    let tenant = stage.start("preempt_gate", "200 4");
    eventually("its gates to hold back what is on the GPU", || {
        (stage.manager.gates_told() == GATES_DEVICE).then_some(())
    });
    stage.manager.gates(Some(true));
    stage.stands(&tenant);
    stage.manager.gates(None);
    stage.runs(&tenant);
    tenant.finish().expect_success();
}

#[test]
fn what_a_shut_gate_keeps_from_the_driver_is_told_of_as_work_that_is_still_to_be_done() {
    let _lock = shared();
    let stage = Stage::new();
    stage.manager.gates(Some(false));
    let mut tenant = stage.start("tenant", "");
    assert_eq!(tenant.ask("launch 1 100"), "launched");
    assert_eq!(tenant.ask("sync"), "synced");
    eventually("the process to be idle", || (!stage.manager.is_busy()).then_some(()));
    stage.manager.gates(Some(true));
    // Nothing is on the GPU, so nothing stands there: it has followed when a kernel does not run.
    let mut launched = 1;
    eventually("the gate to be shut", || {
        assert_eq!(tenant.ask("launch 1 100"), "launched");
        launched += 1;
        stage.node.let_pass(20 * MS);
        (stage.node.row(&tenant).kernels_completed < launched).then_some(())
    });
    let told = stage.manager.busy_ns();
    stage.node.let_pass(100 * MS);
    assert!(stage.manager.is_busy(), "it has work");
    assert_eq!(stage.manager.busy_ns(), told, "none of it has ended");
    stage.manager.gates(Some(false));
    assert_eq!(tenant.ask("sync"), "synced");
    tenant.finish().expect_success();
}

#[test]
fn gates_open_when_the_manager_is_gone() {
    let _lock = shared();
    let stage = Stage::new();
    let tenant = stage.start("preempt_gate", "200");
    stage.runs(&tenant);
    stage.manager.gates(Some(true));
    stage.stands(&tenant);
    stage.manager.hang_up();
    stage.runs(&tenant);
    tenant.finish().expect_success();
}

#[test]
fn a_process_that_is_killed_with_its_gate_shut_leaves_nothing_behind() {
    let _lock = shared();
    let stage = Stage::new();
    let tenant = stage.start("preempt_gate", "200");
    stage.runs(&tenant);
    stage.manager.gates(Some(true));
    stage.stands(&tenant);
    drop(tenant);
    stage.manager.gates(None);
    let next = stage.start("busy", "200 8");
    stage.runs(&next);
    next.finish().expect_success();
}

#[test]
fn a_process_that_begins_with_its_gate_shut_waits_for_it() {
    let _lock = shared();
    let stage = Stage::new();
    stage.manager.gates(Some(true));
    let mut tenant = stage.node.tenant("main", "preempt_gate").arguments("200").start();
    stage.manager.announcement(0);
    stage.manager.gates(Some(false));
    tenant.expect("ready");
    stage.runs(&tenant);
    tenant.finish().expect_success();
}

#[test]
fn a_latency_critical_process_has_no_gates() {
    let _lock = shared();
    let stage = Stage::new();
    stage.manager.say(true, 1);
    stage.manager.gates(Some(true));
    let tenant = stage.start("preempt_gate", "200");
    (0..5).for_each(|_| stage.runs(&tenant));
    assert!(stage.completed(&tenant) > 0);
    tenant.finish().expect_success();
}

/// Runs a program to its end while the gate opens and shuts all the time, on a driver that ends it at a handle of what is gone, or not.
fn under_gates(program: &str, arguments: &str, strict: bool) {
    let _lock = shared();
    let stage = Stage::new();
    let mut tenant = stage.node.tenant("main", program).arguments(arguments);
    if strict {
        tenant = tenant.environment("SLUICE_SIM_STRICT", "20");
    }
    let mut tenant = tenant.start();
    let waiting = std::thread::spawn(move || tenant.ending());
    for round in 0u32.. {
        stage.manager.gates(if round % 7 == 6 { None } else { Some(round.is_multiple_of(2)) });
        if waiting.is_finished() {
            break;
        }
        stage.node.let_pass(u64::from(round % 5) * MS);
    }
    waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).expect_success();
}

#[test]
fn programs_of_all_kinds_give_the_same_results_while_the_gate_opens_and_shuts() {
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
        under_gates(program, arguments, false);
    }
}

#[test]
fn nothing_is_used_that_is_gone_while_the_gate_opens_and_shuts() {
    for arguments in ["perthread", "destroyed", "contexts", "primary", "released"] {
        eprintln!("streams {arguments}");
        under_gates("streams", arguments, true);
    }
}
