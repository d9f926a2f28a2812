//! `sluice policy`, as docs/operators/policy.md has it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const PAGE: &str = include_str!("../../../../docs/operators/policy.md");

fn policy(folder: &Path, arguments: &[&str]) -> Output {
    let sluice = env!("CARGO_BIN_EXE_sluice");
    Command::new(sluice).arg("policy").args(arguments).current_dir(folder).output().unwrap()
}

/// The first block of this language in the page.
fn block(language: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn example_of_the_page_is_valid_and_its_settings_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.yaml"), block("yaml")).unwrap();
    let output = policy(folder.path(), &["policy.yaml"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "preemption.timeslice.be_task_us: 200",
        "preemption.scheduling.quantum_ms: 40",
        "preemption.scheduling.longest_grant_ms: 100",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn mistakes_are_named_as_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = "preemption:\n  timeslice:\n    be_task: 200\n  scheduling:\n    quantum_ms: 20\n";
    fs::write(folder.path().join("policy.yaml"), wrong).unwrap();
    let output = policy(folder.path(), &["policy.yaml"]);
    assert!(!output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(PAGE.contains(&format!("$ sluice policy policy.yaml\n{errors}")), "{errors}");
}

#[test]
fn schema_is_the_one_in_the_repository() {
    let output = policy(Path::new("."), &["--schema"]);
    let committed = include_str!("../../../../docs/reference/policy.schema.json");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed, serde_json::from_str::<serde_json::Value>(committed).unwrap());
}
