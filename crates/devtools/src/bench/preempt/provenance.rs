//! Where a result comes from: driver, commit, date, command.

use std::process::Command;

use nvml_wrapper::Nvml;
use sluice_load::command_driven::unix_ns;

/// Name of a simulated GPU's driver in results.
const SIMULATED: &str = "simulated";

/// Version of the driver.
pub(super) fn driver(simulated: bool) -> String {
    if simulated {
        return SIMULATED.to_owned();
    }
    let version = Nvml::init().and_then(|nvml| nvml.sys_driver_version());
    version.unwrap_or_else(|why| format!("unknown: {why}"))
}

/// The commit that was built, from SLUICE_COMMIT or from git.
pub(super) fn commit() -> String {
    if let Ok(commit) = std::env::var("SLUICE_COMMIT") {
        return commit;
    }
    let head = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let head = head.ok().filter(|output| output.status.success());
    head.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// The command line.
pub(super) fn command() -> String {
    std::env::args().collect::<Vec<_>>().join(" ")
}

/// Now, to the second, as in 2026-11-21T18:00:00+00:00.
pub(super) fn date() -> String {
    text_of(unix_ns() / 1_000_000_000)
}

/// Of seconds since the Unix epoch.
fn text_of(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin with March here, so that the leap day is a year's last; eras are of 400 years.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (month, of_month) =
        (if shifted < 10 { shifted + 3 } else { shifted - 9 }, of_year - (153 * shifted + 2) / 5 + 1);
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year}-{month:02}-{of_month:02}T{:02}:{:02}:{:02}+00:00",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests;
