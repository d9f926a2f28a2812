//! `sluice doctor` on simulated GPUs with each fault: its findings, the enforcement level, and that it leaves nothing behind.

use serde_json::Value;
use sluice_preload_tests::artifacts::built;
use sluice_preload_tests::machine_lock::{exclusive, shared};
use sluice_preload_tests::node::Node;
use sluice_sim::ledger::GroupLedger;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// The doctor's report, and its exit status.
struct Seen {
    report: Value,
    code: Option<i32>,
}

fn doctor(node: &Node, more: &[&str]) -> Seen {
    doctor_at(node.simulator(), more)
}

fn doctor_at(simulator: impl AsRef<OsStr>, more: &[&str]) -> Seen {
    let artifacts = built();
    let output = Command::new(&artifacts.sluice)
        .args(["doctor", "--gpu", "sim", "--json"])
        .args(more)
        .env("SLUICE_SIM_SOCKET", simulator)
        .output()
        .unwrap_or_else(|error| panic!("running the doctor: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    Seen { report, code: output.status.code() }
}

fn gpu(simulator_arguments: &str) -> Node {
    Node::with("").without_manager().simulator_arguments(simulator_arguments).start()
}

/// Waits until no program of the doctor uses the GPU.
#[track_caller]
fn check_nothing_is_left(node: &Node) {
    node.when("all of the doctor's programs to be gone", |ledger| {
        (ledger.processes.iter().all(|process| process.ended) && ledger.groups.is_empty()).then_some(())
    });
}

impl Seen {
    fn check(&self, name: &str) -> (&str, &str) {
        let checks = self.report["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let check = checks.iter().find(|check| check["check"] == name);
        let check = check.unwrap_or_else(|| panic!("no check {name} in {:#}", self.report));
        (check["standing"].as_str().unwrap_or_default(), check["found"].as_str().unwrap_or_default())
    }

    #[track_caller]
    fn check_is(&self, name: &str, expected: &str, found: &str) {
        let (status, text) = self.check(name);
        assert!(status == expected && text.contains(found), "{name}: {status}: {text}");
    }

    #[track_caller]
    fn check_result(&self, overall: &str, code: i32, level: &str, why: &str) {
        assert_eq!(
            (&self.report["verdict"], self.code),
            (&Value::from(overall), Some(code)),
            "{:#}",
            self.report
        );
        assert_eq!(self.report["level"], level, "{:#}", self.report);
        let reason = self.report["why"].as_str().unwrap_or_default();
        assert!(reason.contains(why), "{reason}");
    }

    /// Exactly the checks that did not pass have a next step.
    #[track_caller]
    fn has_a_next_step_exactly_where_needed(&self) {
        for check in self.report["checks"].as_array().into_iter().flatten() {
            let is_well = check["standing"] == "ok" || check["standing"] == "skipped";
            assert_eq!(check.get("next").is_none(), is_well, "{check:#}");
        }
    }
}

#[test]
fn a_driver_with_working_controls_is_full_and_nothing_is_left_behind() {
    let _lock = shared();
    let node = gpu("");
    let seen = doctor(&node, &[]);
    seen.check_result("ok", 0, "full", "stopped, started and sliced");
    for check in [
        "token",
        "channel_groups",
        "set_timeslice",
        "disable_channels",
        "ctxsw_stats",
        "process_lock",
        "memory_ops",
        "hook",
        "outside",
        "driver_version",
        "compute_mode",
        "mps",
    ] {
        seen.check_is(check, "ok", "");
    }
    seen.check_is("process_memory", "ok", "takes 514 MiB");
    seen.has_a_next_step_exactly_where_needed();
    assert!(seen.report["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{}", seen.report);
    check_nothing_is_left(&node);
}

#[test]
fn memory_of_processes_that_nvml_does_not_report_is_a_finding() {
    let _lock = shared();
    let node = gpu("--report-memory off");
    let seen = doctor(&node, &[]);
    seen.check_is("process_memory", "degraded", "not available");
    seen.check_result("degraded", 1, "full", "stopped, started and sliced");
    seen.has_a_next_step_exactly_where_needed();
}

#[test]
fn the_doctors_programs_end_when_it_is_killed() {
    let _lock = shared();
    let node = gpu("");
    // A killed doctor cannot remove its folder.
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("making a folder: {error}"));
    let mut killed = Command::new(&built().sluice)
        .args(["doctor", "--gpu", "sim"])
        .env("SLUICE_SIM_SOCKET", node.simulator())
        .env("TMPDIR", folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("running the doctor: {error}"));
    // Slices are set or a group is disabled; both end with the programs.
    node.when("the doctor to control a program", |ledger| {
        let touched = |group: &GroupLedger| !group.is_enabled || group.timeslice_ns == 8_000_000;
        ledger.groups.iter().any(touched).then_some(())
    });
    killed.kill().and_then(|()| killed.wait()).unwrap_or_else(|error| panic!("killing the doctor: {error}"));
    check_nothing_is_left(&node);
}

#[test]
fn a_driver_that_reports_success_without_effect_is_degraded() {
    let _lock = shared();
    let seen = doctor(&gpu("--controls status-only"), &[]);
    seen.check_is("set_timeslice", "degraded", "nothing comes of it");
    seen.check_is("disable_channels", "degraded", "nothing comes of it");
    seen.check_is("channel_groups", "ok", "");
    seen.check_result("degraded", 1, "device", "DISABLE_CHANNELS): the driver reports success");
    seen.has_a_next_step_exactly_where_needed();
}

#[test]
fn a_driver_without_controls_or_memory_operations_falls_to_the_host() {
    let _lock = shared();
    let seen = doctor(&gpu("--controls none --mem-ops off"), &[]);
    seen.check_is("set_timeslice", "degraded", "0x56");
    seen.check_is("disable_channels", "degraded", "0x56");
    seen.check_is("ctxsw_stats", "degraded", "0x56");
    seen.check_is("memory_ops", "degraded", "801");
    seen.check_is("token", "ok", "");
    seen.check_result("degraded", 1, "host", "Not device: memory operations");
}

#[test]
fn missing_memory_operations_do_not_lower_the_level() {
    let _lock = shared();
    let seen = doctor(&gpu("--mem-ops off"), &[]);
    seen.check_is("memory_ops", "degraded", "801");
    seen.check_result("degraded", 1, "full", "stopped, started and sliced");
}

/// Runs the self-test, which decides the effects of all controls. Returns its exit status.
fn self_test(node: &Node, result_file: &Path) -> Option<i32> {
    let status = Command::new(&built().sluice)
        .args(["self-test", "--gpu", "sim", "--json", "--write"])
        .arg(result_file)
        .env("SLUICE_SIM_SOCKET", node.simulator())
        .stdout(std::process::Stdio::null())
        .status();
    let status = status.unwrap_or_else(|error| panic!("running the self-test: {error}"));
    let written = std::fs::read_to_string(result_file).unwrap_or_default();
    assert!(!written.to_lowercase().contains("inconclusive"), "{written}");
    status.code()
}

#[test]
fn a_manager_uses_the_self_test_instead_of_the_drivers_return_codes() {
    // The self-test measures shares in real time and has three attempts: enough on a node whose GPU is idle, not beside other tests.
    let _lock = exclusive();
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("a folder for results: {error}"));
    let result_file = folder.path().join("state/result.json");
    let manager = format!("--controls simulated --self-test {}", result_file.display());
    let node = |controls: &str| {
        let clients = "1\nmain 0.5 1.0 8589934592\n";
        let options = Node::with(clients).without_manager().manager_arguments(&manager);
        options.simulator_arguments(controls).start()
    };
    let mut faulty = node("--controls status-only");
    assert_eq!(self_test(&faulty, &result_file), Some(2));
    faulty.start_manager();
    faulty.logged(&["channel groups cannot be disabled", "nothing comes of it"]);
    // Another GPU: the result in the file does not apply.
    let mut working = node("");
    assert_eq!(self_test(&working, &result_file), Some(0));
    let written = std::fs::metadata(&result_file).and_then(|file| file.modified()).ok();
    working.start_manager();
    working.logged(&["has proven the driver's controls"]);
    // The same GPU again: the result still holds.
    assert_eq!(self_test(&working, &result_file), Some(0));
    assert_eq!(std::fs::metadata(&result_file).and_then(|file| file.modified()).ok(), written);
}

#[test]
fn of_several_gpus_the_named_one_is_tested() {
    // The self-test measures shares in real time and has three attempts: enough on a node whose GPU is idle, not beside other tests.
    let _lock = exclusive();
    let uuid = |digit: char| format!("GPU-00000000-0000-4000-8000-00000000000{digit}");
    let (faulty, working) =
        (gpu(&format!("--controls status-only --uuid {}", uuid('a'))), gpu(&format!("--uuid {}", uuid('b'))));
    // As in the node agent's container: the driver is not beside the program, and only this folder is writable.
    let beside = built().sluice.parent().unwrap_or_else(|| panic!("the program is nowhere"));
    let folder = tempfile::tempdir_in(beside).unwrap_or_else(|error| panic!("a folder: {error}"));
    let program = folder.path().join("sluice");
    std::fs::hard_link(&built().sluice, &program).unwrap_or_else(|error| panic!("a second name: {error}"));
    let result_file = folder.path().join("result.json");
    let self_test = || {
        let mut test = Command::new(&program);
        test.args(["self-test", "--gpu", "sim", "--gpu-uuid", &uuid('b'), "--write"]).arg(&result_file);
        test.arg("--library").arg(&built().hook).env("LD_LIBRARY_PATH", &built().driver);
        test.env(
            "SLUICE_SIM_SOCKET",
            [faulty.simulator(), working.simulator()].map(|path| path.display().to_string()).join(","),
        );
        test.env("TMPDIR", folder.path())
            .status()
            .unwrap_or_else(|error| panic!("the self-test: {error}"))
            .code()
    };
    let code = self_test();
    let written = std::fs::read_to_string(&result_file).unwrap_or_default();
    assert_eq!(code, Some(0), "{written}");
    assert!(written.contains(&uuid('b')), "{written}");
    assert!(faulty.ledger().processes.is_empty(), "the other GPU was touched");
}

#[test]
fn an_unknown_driver_is_reported_and_its_controls_are_judged_by_their_effect() {
    let _lock = shared();
    let seen = doctor(&gpu("--driver-version 700.12.01"), &[]);
    seen.check_is("driver_version", "degraded", "700.12.01");
    seen.check_result("degraded", 1, "full", "");
}

#[test]
fn under_mps_the_level_is_device() {
    let _lock = shared();
    let seen = doctor(&gpu("--mps"), &[]);
    seen.check_is("mps", "degraded", "MPS server");
    seen.check_result("degraded", 1, "device", "several tenants");
}

#[test]
fn a_gpu_that_cannot_be_shared_is_broken() {
    let _lock = shared();
    let seen = doctor(&gpu("--compute-mode 3"), &[]);
    seen.check_is("compute_mode", "broken", "one process at a time");
    seen.check_is("hook", "broken", "a program gets no context");
    seen.check_result("broken", 2, "none", "46");
    let seen = doctor(&gpu("--mig"), &[]);
    seen.check_is("mig_mode", "broken", "MIG is on");
    assert_eq!(seen.code, Some(2));
}

#[test]
fn a_missing_or_foreign_library_gives_level_none() {
    let _lock = shared();
    let node = gpu("");
    let seen = doctor(&node, &["--library", "/nowhere/libsluice.so"]);
    seen.check_is("hook", "broken", "/nowhere/libsluice.so is not there");
    seen.check_result("broken", 2, "none", "does not reach a manager");
    let other = built().driver.join("libnvidia-ml.so.1");
    let seen = doctor(&node, &["--library", &other.display().to_string()]);
    seen.check_is("hook", "broken", "does not attach");
    seen.check_result("broken", 2, "none", "does not reach a manager");
}

#[test]
fn a_missing_gpu_is_broken_and_other_gpus_are_not_used() {
    let _lock = shared();
    let node = gpu("");
    let seen = doctor_at(node.path().join("absent.sock"), &[]);
    seen.check_is("device_nodes", "broken", "no simulator answers");
    seen.check_is("driver_library", "broken", "");
    seen.check_result("broken", 2, "none", "driver does not work");
    assert!(node.ledger().processes.is_empty());
}
