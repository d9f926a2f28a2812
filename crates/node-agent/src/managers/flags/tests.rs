//! Tests of `flags.rs`.

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    managers: Flags,
}

fn parse(flags: &[&str]) -> Result<Flags, clap::Error> {
    Program::try_parse_from([&["agent"], flags].concat()).map(|program| program.managers)
}

#[test]
fn controls_are_auto_without_flags() {
    let flags = parse(&[]).unwrap();
    assert_eq!(flags, Flags::default());
    assert_eq!(flags.arguments(), ["--controls=auto"]);
}

#[test]
fn every_flag_reaches_the_managers_unchanged() {
    for controls in ["--controls=auto", "--controls=any-driver", "--controls=simulated", "--controls=off"] {
        assert_eq!(parse(&[controls, "--turn-ms=100"]).unwrap().arguments(), [controls, "--turn-ms=100"]);
    }
    for adopt in ["--adopt=auto", "--adopt=off"] {
        assert_eq!(parse(&[adopt]).unwrap().arguments(), ["--controls=auto", adopt]);
    }
    for policy in ["auto", "report", "stop", "evict"].map(|policy| format!("--violation-policy={policy}")) {
        assert_eq!(parse(&[&policy]).unwrap().arguments(), ["--controls=auto", policy.as_str()]);
    }
    let file = "/etc/sluice/policy.yaml";
    let expected = ["--controls=auto", "--policy-file", file];
    assert_eq!(parse(&["--policy-file", file]).unwrap().arguments(), expected);
}

#[test]
fn gpus_are_tested_unless_controls_or_tests_are_off() {
    let tests = |flags: &[&str]| parse(flags).unwrap().tests();
    assert!(tests(&[]) && tests(&["--controls=any-driver"]));
    assert!(!tests(&["--self-test=off"]) && !tests(&["--controls=off"]));
}

#[test]
fn invalid_values_are_refused_with_the_flag() {
    for wrong in [
        "--controls=maybe",
        "--adopt=all",
        "--violation-policy=kill",
        "--turn-ms=29",
        "--turn-ms=101",
        "--turn-ms=long",
    ] {
        let message = parse(&[wrong]).unwrap_err().to_string();
        assert!(message.contains(wrong.split('=').next().unwrap()), "{message}");
    }
}
