//! The JSON of `sluice-dev bench` on the simulated GPU. The figures themselves are not checked here.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use sluice_preload_tests::{artifacts, shared};

/// All levels of preemption.
const LEVELS: [&str; 2] = ["token", "full"];
const REQUESTS: u64 = 24;
/// Time of a request's kernel, the shortest possible latency.
const KERNEL_US: f64 = 100.0;

fn bench(json: &Path, more: &[&str]) -> (bool, Value) {
    let status = Command::new(&artifacts::built().sluice_dev)
        .args(["bench", "preempt", "--gpu", "sim", "--blocks", "2", "--be-kernel-us", "1000", "--json"])
        .arg(json)
        .args(["--requests", &REQUESTS.to_string(), "--levels"])
        .args(LEVELS)
        .args(more)
        .stdout(Stdio::null())
        .status()
        .unwrap_or_else(|error| panic!("running sluice-dev bench: {error}"));
    let text = std::fs::read_to_string(json).unwrap_or_else(|error| panic!("{}: {error}", json.display()));
    (status.success(), serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn rows(report: &Value) -> &Vec<Value> {
    report["rows"].as_array().unwrap_or_else(|| panic!("no rows in {report:#}"))
}

fn find<'a>(of: &'a Value, list: &str, level: &str, hint: bool) -> Option<&'a Value> {
    of[list]
        .as_array()?
        .iter()
        .find(|row| row["level"] == level && row["hint"] == hint && row["be_kernel_us"] == 1000)
}

#[test]
fn each_level_with_and_without_hints_is_a_row() {
    let _lock = shared();
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("making a folder: {error}"));
    let json = folder.path().join("preempt.json");
    let (ok, report) = bench(&json, &[]);
    assert!(ok, "{report:#}");
    for fact in ["gpu", "driver", "commit", "date", "command"] {
        assert!(report[fact].as_str().is_some_and(|fact| !fact.is_empty()), "{fact} is missing: {report:#}");
    }
    for (level, hint) in LEVELS.iter().flat_map(|level| [(*level, false), (*level, true)]) {
        let row = find(&report, "rows", level, hint);
        is_consistent(row.unwrap_or_else(|| panic!("{level} {hint}: {report:#}")));
    }
    let full = |hint| find(&report, "rows", "full", hint).map_or(Value::Null, Clone::clone);
    assert!(full(false)["achieved"]["turn"].as_u64() > Some(0), "{report:#}");
    assert!(full(false)["holds"] == 0, "holds without a hint: {report:#}");
    assert!(full(true)["hint_results"].as_object().is_some_and(|results| !results.is_empty()), "{report:#}");

    // Rows in the file are not measured again.
    let (ok, resumed) = bench(&json, &["--resume", &json.display().to_string()]);
    assert!(ok && rows(&resumed) == rows(&report), "{resumed:#}");
}

fn is_consistent(row: &Value) {
    for latency in ["lc_alone_us", "lc_stock_us", "lc_sluice_us"] {
        let us = |quantile: &str| row[latency][quantile].as_f64().unwrap_or(f64::NAN);
        assert!(
            us("p50") >= KERNEL_US && us("p99") >= us("p50") && us("p999") >= us("p99"),
            "{latency}: {row:#}"
        );
    }
    for arm in ["alone", "stock", "sluice"] {
        assert_eq!(row["requests"][arm], REQUESTS, "{row:#}");
    }
    assert!(row["be_kernels_counted"].as_u64() > Some(0) && row["be_kept"].as_f64() > Some(0.0), "{row:#}");
}

#[test]
fn a_run_at_its_time_limit_lists_the_rows_that_it_left_out() {
    let _lock = shared();
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("making a folder: {error}"));
    let (ok, report) = bench(&folder.path().join("preempt.json"), &["--limit", "0"]);
    assert!(!ok && rows(&report).is_empty(), "{report:#}");
    for (level, hint) in LEVELS.iter().flat_map(|level| [(level, false), (level, true)]) {
        assert!(find(&report, "left_out", level, hint).is_some(), "{level} {hint}: {report:#}");
    }
}

#[test]
fn a_scenario_reports_its_figures_and_the_status_follows_from_them() {
    let _lock = shared();
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("making a folder: {error}"));
    let json = folder.path().join("disturb.json");
    let mut bench = Command::new(&artifacts::built().sluice_dev);
    bench.args(["bench", "disturb", "--only", "s1-restarted-0.5-0.5", "--seconds", "2", "--json"]).arg(&json);
    let ran = bench.stdout(Stdio::null()).status();
    let succeeded = ran.unwrap_or_else(|error| panic!("running sluice-dev bench: {error}")).success();
    let text = std::fs::read_to_string(&json).unwrap_or_else(|error| panic!("{}: {error}", json.display()));
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    for fact in ["commit", "date", "machine", "command"] {
        assert!(report[fact].as_str().is_some_and(|fact| !fact.is_empty()), "{fact} is missing: {report:#}");
    }
    let scenarios = report["scenarios"].as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = scenarios.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["s1-restarted-0.5-0.5-controls", "s1-restarted-0.5-0.5-token"], "{report:#}");
    for row in &scenarios {
        let figures = row["figures"].as_array().cloned().unwrap_or_default();
        let measured = |figure: &Value| figure["measured"].is_number() && figure["bar"].is_number();
        assert!(figures.len() == 3 && figures.iter().all(measured), "{row:#}");
        let passed = figures.iter().all(|figure| figure["passed"] == true);
        assert_eq!(row["passed"], passed, "{row:#}");
        // Both processes ran, also the one that was started again: by the simulator's ledger.
        let shares = row["details"]["shares"].as_array().cloned().unwrap_or_default();
        assert!(shares.len() == 2 && shares.iter().all(|share| share.as_f64() > Some(0.1)), "{row:#}");
    }
    assert_eq!(succeeded, scenarios.iter().all(|row| row["passed"] == true), "{report:#}");
}

#[test]
fn the_calls_of_a_request_make_no_system_call_that_the_driver_does_not_make() {
    let _lock = shared();
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("making a folder: {error}"));
    let json = folder.path().join("hook.json");
    let mut bench = Command::new(&artifacts::built().sluice_dev);
    let ran =
        bench.args(["bench", "hook", "--gpu", "sim", "--json"]).arg(&json).stdout(Stdio::null()).status();
    assert!(ran.unwrap_or_else(|error| panic!("running sluice-dev bench: {error}")).success());
    let text = std::fs::read_to_string(&json).unwrap_or_else(|error| panic!("{}: {error}", json.display()));
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    // The wait's system calls are the simulated driver's: whether it sleeps depends on the timing.
    for call in ["cuMemcpyHtoDAsync", "cuGraphLaunch", "cuMemcpyDtoHAsync"] {
        let steps = report["request"]["warm"].as_array();
        let step = steps.and_then(|steps| steps.iter().find(|step| step["call"] == call));
        let step = step.unwrap_or_else(|| panic!("{call} is missing: {report:#}"));
        assert!(step["bare_ns"]["p50"].as_f64() > Some(0.0), "{step:#}");
        if step["syscalls"].is_number() && step["bare_syscalls"].is_number() {
            assert_eq!(step["syscalls"], step["bare_syscalls"], "{step:#}");
        } else {
            // Printed past the captured output.
            let _ =
                writeln!(std::io::stderr(), "skipped: system calls of {call}: tracing is not permitted here");
        }
    }
}
