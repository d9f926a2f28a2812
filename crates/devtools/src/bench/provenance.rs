//! Where a result comes from: commit, date and machine.

use std::process::Command;
use std::{fs, thread};

/// The commit that was built, from SLUICE_COMMIT or from git; `unknown` if there is neither.
pub(super) fn commit() -> String {
    std::env::var("SLUICE_COMMIT").unwrap_or_else(|_| {
        let output = Command::new("git").args(["rev-parse", "HEAD"]).output();
        let hash = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        hash.map_or_else(|| "unknown".to_owned(), |hash| String::from_utf8_lossy(&hash).trim().to_owned())
    })
}

/// Now, to the second, as in 2026-11-21T18:00:00+00:00.
pub(super) fn date() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()
}

/// Model and number of this machine's processors.
pub(super) fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = thread::available_parallelism().map_or(0, usize::from);
    format!("{}, {cores} cores", model.map_or("unknown processor", |(_, model)| model))
}
