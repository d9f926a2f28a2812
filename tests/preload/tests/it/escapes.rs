//! Attempts to get around Sluice, by the suite `sluice-dev escapes`. The gate's step `escapes` makes all of them, so these tests run only by
//! name: `tests/mutants/run` shows with them that the suite fails without the check.

use sluice_preload_tests::{artifacts, exclusive};
use std::path::Path;
use std::process::Command;

/// Runs the attempts whose name contains `name`, or returns `None` where no cgroup can be made.
fn result_of(name: &str) -> Option<(bool, String)> {
    // Shares and detection times follow the real clock.
    let _lock = exclusive();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(&artifacts::built().sluice_dev);
    command.arg("escapes").arg("--repository").arg(repository).args(["--only", name]);
    let output = command.output().unwrap_or_else(|error| panic!("starting {command:?}: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (!text.contains("no cgroup can be made here")).then_some((output.status.success(), text))
}

#[ignore = "the gate's step escapes makes every attempt; a mutant must fail this one"]
#[test]
fn second_driver_after_attaching_gains_nothing() {
    let Some((is_ok, text)) = result_of("dlmopen after attaching") else { return };
    assert!(is_ok, "{text}");
}

#[ignore = "the gate's step escapes makes every attempt; a mutant must fail this one"]
#[test]
fn groups_announced_without_their_channels_gain_nothing() {
    let Some((is_ok, text)) = result_of("groups announced without channels") else { return };
    assert!(is_ok, "{text}");
}
