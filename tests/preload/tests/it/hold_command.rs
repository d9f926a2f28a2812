//! Programs without the hook, held by `sluice hold`, measured by the simulated GPU's ledger.

use serde_json::Value;
use sluice_preload_tests::artifacts::built;
use sluice_preload_tests::eventually;
use sluice_preload_tests::host_time::HostTime;
use sluice_preload_tests::machine_lock::{exclusive, shared};
use sluice_preload_tests::node::Node;
use sluice_preload_tests::waiting::TIMEOUT;
use sluice_test_bed::{Output, Process};
use std::process::Command;
use std::time::Instant;

/// A child of the test that prints JSON lines; killed when dropped.
struct Running(Process);

impl Running {
    fn start(node: &Node, label: &str, arguments: &[&str]) -> Self {
        let artifacts = built();
        let mut command = Command::new(&artifacts.sluice);
        command
            .args(arguments)
            .env("SLUICE_SIM_SOCKET", node.simulator())
            .env("SLUICE_SIM_LABEL", label)
            .env("LD_LIBRARY_PATH", &artifacts.driver)
            .env_remove("LD_PRELOAD");
        let name = format!("{}-{label}", arguments[0]);
        let process = Process::start(&name, command, node.path(), Output::Lines);
        Self(process.unwrap_or_else(|error| panic!("{error:#}")))
    }

    /// A program without the hook that keeps the GPU busy.
    fn busy(node: &Node, label: &str) -> Self {
        let busy = Self::start(
            node,
            label,
            &["load", "be", "--duration-us", "1000", "--depth", "64", "--stop-with-stdin"],
        );
        assert_eq!(busy.line()["record"], "started");
        busy
    }

    /// Its next line.
    fn line(&self) -> Value {
        let line = self.0.next_line(Instant::now() + TIMEOUT);
        let line = line.unwrap_or_else(|error| panic!("waiting for a line: {error:?}: {}", self.0.log()));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn pid(&self) -> String {
        self.0.pid().to_string()
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    /// Ends its input and waits for its end.
    fn end(&mut self) -> bool {
        self.0.close_input();
        let status = self.0.wait(Instant::now() + TIMEOUT);
        let status = status.unwrap_or_else(|error| panic!("{error:#}"));
        status.unwrap_or_else(|| panic!("{} does not end", self.0.name())).success()
    }
}

fn gpu() -> Node {
    Node::with("").without_manager().start()
}

fn hold(node: &Node, arguments: &[&str]) -> Running {
    Running::start(node, "", &[&["hold", "--simulated"], arguments].concat())
}

fn completed(node: &Node, label: &str) -> u64 {
    node.ledger().by_label(label).map_or(0, |row| row.kernels_completed)
}

/// Kernels that a program completes while another one completes 100.
fn beside(node: &Node, label: &str, other: &str) -> u64 {
    let (before, then) = (completed(node, label), completed(node, other));
    node.when("the other program to run", |ledger| {
        ledger.by_label(other).filter(|row| row.kernels_completed >= then + 100).map(|_| ())
    });
    completed(node, label) - before
}

#[track_caller]
fn check_runs(node: &Node, label: &str) {
    let before = completed(node, label);
    node.when("the program to run", |ledger| {
        ledger.by_label(label).filter(|row| row.kernels_completed >= before + 100).map(|_| ())
    });
}

#[test]
fn a_held_program_without_the_hook_stops_and_runs_again_after_release() {
    let _lock = shared();
    let node = gpu();
    let (first, _second) = (Running::busy(&node, "first"), Running::busy(&node, "second"));
    for by in ["groups", "lock"] {
        let mut hold = hold(&node, &["--pid", &first.pid(), "--by", by]);
        let held = hold.line();
        assert_eq!((&held["hold"], &held["by"]), (&"held".into(), &by.into()));
        assert_eq!(beside(&node, "first", "second"), 0, "{by}");
        assert!(hold.end(), "{by}");
        check_runs(&node, "first");
    }
}

#[test]
fn contexts_created_during_a_hold_are_held_and_released_too() {
    let _lock = shared();
    let node = gpu();
    let mut later = node.tenant("later", "later").without_hook().start();
    later.expect("ready");
    let _second = Running::busy(&node, "second");
    let pid = later.pid();
    let mut hold = hold(&node, &["--pid", &pid.to_string(), "--by", "groups"]);
    assert_eq!(hold.line()["hold"], "held");
    let made = || node.ledger().groups.iter().filter(|group| group.pid == pid).count();
    let stopped =
        || node.ledger().groups.iter().filter(|group| group.pid == pid && !group.is_enabled).count();
    let held = (made(), stopped());
    later.send("more");
    later.expect("more");
    eventually("a second context", || (made() > held.0).then_some(()));
    eventually("all groups to stop", || (stopped() > held.1).then_some(()));
    assert!(hold.end());
    eventually("all groups to run", || (stopped() == 0).then_some(()));
    later.finish().expect_success();
}

#[test]
fn the_program_runs_again_if_either_holding_process_is_killed() {
    let _lock = shared();
    let node = gpu();
    let first = Running::busy(&node, "first");
    for killed in ["parent", "worker"] {
        let mut hold = hold(&node, &["--pid", &first.pid()]);
        assert_eq!(hold.line()["hold"], "held");
        let parent = hold.0.pid();
        if killed == "parent" {
            hold.kill();
        } else {
            let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
            let worker = children.unwrap_or_default().trim().parse().unwrap_or(0);
            assert!(worker > 1, "no worker");
            let worker = nix::unistd::Pid::from_raw(worker);
            nix::sys::signal::kill(worker, nix::sys::signal::Signal::SIGKILL)
                .unwrap_or_else(|error| panic!("killing the worker: {error}"));
        }
        check_runs(&node, "first");
        hold.kill();
    }
}

#[test]
fn a_program_left_held_by_both_is_released_by_another_command() {
    let _lock = shared();
    let node = gpu();
    let (first, _second) = (Running::busy(&node, "first"), Running::busy(&node, "second"));
    let mut worker = hold(&node, &["--pid", &first.pid(), "--worker"]);
    assert_eq!(worker.line()["hold"], "held");
    worker.kill();
    assert_eq!(beside(&node, "first", "second"), 0, "it was not released");
    let mut release = hold(&node, &["--release", "--pid", &first.pid()]);
    assert_eq!(release.line()["hold"], "released");
    assert!(release.end());
    check_runs(&node, "first");
}

#[test]
fn a_program_killed_during_a_hold_leaves_no_memory() {
    let _lock = shared();
    let node = gpu();
    let mut first = Running::busy(&node, "first");
    let mut hold = hold(&node, &["--pid", &first.pid()]);
    assert_eq!(hold.line()["hold"], "held");
    assert!(node.ledger().gpu.memory_used > 0);
    first.kill();
    assert_eq!(hold.line()["hold"], "gone");
    node.when("its memory to be free", |ledger| (ledger.gpu.memory_used == 0).then_some(()));
    assert!(hold.end());
}

#[test]
fn two_programs_without_the_hook_share_by_quanta() {
    // Quanta follow the real clock.
    let _lock = exclusive();
    let node = gpu();
    let (first, second) = (Running::busy(&node, "first"), Running::busy(&node, "second"));
    let mut hold = hold(&node, &["--pid", &first.pid(), "--pid", &second.pid(), "--shares", "30,70"]);
    assert_eq!(hold.line()["hold"], "turns");
    let host = HostTime::begin();
    let (pid, from) = (first.0.pid(), node.ledger().gpu.now_ns);
    // From the first quantum to the begin of a later one, as part of a cycle would distort the share. The first quantum is included: soon
    // after the start the command searches for new groups, and no quantum ends until the search does. Later quanta make up for that.
    let to = node.when("120 hand-offs", |ledger| {
        let timeline = node.timeline((from, ledger.gpu.now_ns));
        let mut begins = timeline.windows(2).filter(|pair| pair[0].pid != pair[1].pid && pair[1].pid == pid);
        begins.nth(60).map(|pair| pair[1].start_ns)
    });
    let (share, taken) = (node.window((from, to)).share_of_busy(pid), host.taken());
    assert!((0.27 - taken..0.33 + taken).contains(&share), "{share}");
    assert!(hold.end());
    check_runs(&node, "first");
    check_runs(&node, "second");
}

#[test]
fn a_program_without_discovered_groups_is_held_by_the_drivers_lock() {
    let _lock = shared();
    let node = gpu();
    let (first, _second) = (Running::busy(&node, "first"), Running::busy(&node, "second"));
    // Without --simulated the simulator's control files are not accepted, so no group is found.
    let mut hold = Running::start(&node, "", &["hold", "--pid", &first.pid()]);
    let held = hold.line();
    assert_eq!((&held["hold"], &held["by"]), (&"held".into(), &"lock".into()));
    assert_eq!(beside(&node, "first", "second"), 0);
    assert!(hold.end());
    check_runs(&node, "first");
}

#[test]
fn a_program_without_a_gpu_is_reported() {
    let _lock = shared();
    let output = Command::new(&built().sluice)
        .args(["hold", "--by", "groups", "--pid", &std::process::id().to_string()])
        .output()
        .unwrap_or_else(|error| panic!("running hold: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("no descriptor of the NVIDIA control device"),
        "{errors}"
    );
}
