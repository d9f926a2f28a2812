//! The name `kubectl-sluice`.

use std::os::unix::fs::symlink;
use std::process::Command;

/// The binary under this name, with these arguments: its output.
fn run_as(name: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(name);
    symlink(env!("CARGO_BIN_EXE_sluice"), &program).unwrap();
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn binary_named_kubectl_sluice_has_the_plugins_commands_only() {
    let help = run_as("kubectl-sluice", &["--help"]);
    assert!(help.contains("Usage: kubectl sluice <COMMAND>"), "{help}");
    for command in ["top", "explain", "nodes"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
    }
    assert!(!help.contains("pod-manager"), "{help}");
}

#[test]
fn binary_named_sluice_has_the_same_commands_beside_its_own() {
    let help = run_as("sluice", &["--help"]);
    for command in ["top", "explain", "nodes", "pod-manager"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
    }
}

#[test]
fn absent_kubeconfig_is_named_in_the_error() {
    let error = run_as("kubectl-sluice", &["nodes", "--kubeconfig", "/nonexistent/config"]);
    assert!(error.starts_with("sluice: cannot read the kubeconfig /nonexistent/config: "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}
