//! Attempts to get around Sluice, by the suite `sluice-dev escapes`. The gate runs all of them; these show that the suite can fail.

use sluice_preload_tests::{artifacts, exclusive};
use std::path::Path;
use std::process::Command;

/// Runs the attempts whose name contains `name`, or returns `None` where no cgroup can be made.
fn result_of(name: &str, manager: &str) -> Option<(bool, String)> {
    // Shares and detection times follow the real clock.
    let _lock = exclusive();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(&artifacts::built().sluice_dev);
    command.arg("escapes").arg("--repository").arg(repository).args(["--only", name]);
    command.arg(format!("--manager={manager}"));
    let output = command.output().unwrap_or_else(|error| panic!("starting {command:?}: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (!text.contains("no cgroup can be made here")).then_some((output.status.success(), text))
}

#[test]
fn second_driver_after_attaching_gains_nothing() {
    let Some((is_ok, text)) = result_of("dlmopen after attaching", "--adopt=auto") else { return };
    assert!(is_ok, "{text}");
}

#[test]
fn plug_in_opened_with_deepbind_gains_no_time_and_its_memory_is_detected() {
    let Some((is_ok, text)) = result_of("RTLD_DEEPBIND", "--adopt=auto") else { return };
    assert!(is_ok, "{text}");
}

#[test]
fn plug_in_opened_with_deepbind_is_found_by_inspection_only() {
    let Some((is_ok, text)) = result_of("plug-in opened with RTLD_DEEPBIND", "--adopt=off") else { return };
    assert!(!is_ok && text.contains("worse than expected: plug-in opened with RTLD_DEEPBIND"), "{text}");
}

#[test]
fn groups_announced_without_their_channels_gain_nothing() {
    let Some((is_ok, text)) = result_of("groups announced without channels", "--adopt=auto") else { return };
    assert!(is_ok, "{text}");
}

#[test]
fn without_inspection_the_suite_fails() {
    let Some((is_ok, text)) = result_of("dlmopen after attaching", "--adopt=off") else { return };
    assert!(!is_ok && text.contains("worse than expected: dlmopen after attaching"), "{text}");
}
