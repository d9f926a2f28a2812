//! `sluice sim run`: the commands of docs/design/performance-model.md, and what a scenario with mistakes leads to.

use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Runs `sluice` with these words in a folder that has the repository's examples.
fn run(folder: &Path, words: &str) -> Output {
    let examples = folder.join("examples");
    if !examples.exists() {
        symlink(Path::new(REPOSITORY).join("examples"), examples).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(words.split_whitespace()).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(folder: &Path, words: &str) -> Value {
    let output = run(folder, words);
    assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn commands_of_the_performance_model_run_and_the_plots_of_the_page_are_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let page = format!("{REPOSITORY}/docs/design/performance-model.md");
    let page = std::fs::read_to_string(page).unwrap();
    let commands: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("sluice "))
        .filter(|line| line.starts_with("sim run"))
        .collect();
    assert!(commands.len() >= 3, "{commands:?}");
    for words in commands {
        let output = run(folder.path(), words);
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains("sluice"), "{words}");
    }
    for (name, line, lines) in [("policies", "cdf", 9), ("trade-off", "curve", 4)] {
        let drawn = std::fs::read_to_string(folder.path().join(format!("{name}.svg"))).unwrap();
        let stored = format!("{REPOSITORY}/docs/design/{name}.svg");
        let is_same = std::fs::read_to_string(&stored).is_ok_and(|stored| stored == drawn);
        assert!(is_same, "{stored} is not what the command draws");
        assert_eq!(
            drawn.matches(&format!("class=\"{line}\"")).count(),
            lines,
            "{name}: one line for each policy"
        );
    }
}

#[test]
fn table_of_the_performance_model_has_the_results_of_its_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let output = json(folder.path(), "sim run examples/simulation/service-beside-two-trainings.yaml --json");
    let page = std::fs::read_to_string(format!("{REPOSITORY}/docs/design/performance-model.md")).unwrap();
    let mut missing = String::new();
    for report in output["runs"][0]["policies"].as_array().unwrap() {
        let number = |client: usize, key: &str| report["clients"][client][key].as_f64().unwrap();
        let row = format!(
            "| `{}` | {:.2} | {:.2} | {:.3} | {:.3} |",
            report["policy"].as_str().unwrap(),
            number(0, "p50_ms"),
            number(0, "p99_ms"),
            number(1, "share"),
            number(2, "share")
        );
        if !page.contains(&row) {
            missing += &format!("{row}\n");
        }
    }
    assert!(missing.is_empty(), "the page lacks\n{missing}");
}

#[test]
fn json_has_the_same_results_each_time_and_counts_its_own_events() {
    let folder = tempfile::tempdir().unwrap();
    let words = "sim run examples/simulation/service-beside-training.yaml --json";
    let (first, second) = (json(folder.path(), words), json(folder.path(), words));
    assert_eq!(first["runs"], second["runs"]);
    let policies = first["runs"][0]["policies"].as_array().unwrap();
    let events: u64 = policies.iter().map(|report| report["events"].as_u64().unwrap()).sum();
    assert_eq!(first["events"], events);
    // Each request is two events at least: its arrival, and the end of its burst.
    assert!(events > 9 * 2 * 5999, "{events}");
    assert!(first["events_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn sweep_gives_the_first_client_each_request_and_sluice_the_share() {
    let folder = tempfile::tempdir().unwrap();
    let words = "sim run examples/simulation/two-trainings-after-stall.yaml --sweep request=0.1..0.9 --json";
    let output = json(folder.path(), words);
    let runs = output["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 9);
    for (step, run) in runs.iter().enumerate() {
        let request = run["request"].as_f64().unwrap();
        assert!((request - 0.1 - 0.1 * step as f64).abs() < 1e-5, "{request}");
        let clients = &run["policies"][0]["clients"];
        let shares = [0, 1].map(|client| clients[client]["share"].as_f64().unwrap());
        let share = shares[0] / (shares[0] + shares[1]);
        // The stall of 4 s in 84 s gives one of the two up to 5 points.
        assert!((share - request).abs() < 0.06, "{request}: {share}");
    }
}

#[test]
fn sweep_of_several_gpus_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "sim run examples/simulation/two-gangs.yaml --sweep request=0.1..0.9");
    assert!(!output.status.success());
    let error = text(&output.stderr);
    assert!(error.contains("has 2 GPUs, expected one GPU for a sweep"), "{error}");
}

#[test]
fn unknown_key_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!("{REPOSITORY}/examples/simulation/service-beside-training.yaml");
    let scenario = std::fs::read_to_string(scenario).unwrap().replace("burst:", "brust:");
    let line = 1 + scenario.lines().position(|line| line.contains("brust:")).unwrap();
    std::fs::write(folder.path().join("wrong.yaml"), scenario).unwrap();
    let output = run(folder.path(), "sim run wrong.yaml");
    assert!(!output.status.success());
    let error = text(&output.stderr);
    let expected = format!("line {line}, workloads[0].service.brust: found unknown key \"brust\"");
    assert!(error.contains(&expected), "{error}");
}
