//! The levels of preemption: the manager's flags for each, and the metric that reports the level in use.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use sluice_test_bed::Metrics;

/// How best-effort work is preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PreemptionLevel {
    /// By the queue in its own process: submitted work runs to its end
    Host,
    /// By stream gates: submitted work that has not begun does not begin
    Device,
    /// By time slices: in the middle of a kernel
    Full,
    /// By stream gates, all processes under one MPS server
    MpsGate,
}

impl PreemptionLevel {
    /// Name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
            Self::Full => "full",
            Self::MpsGate => "mps-gate",
        }
    }

    /// Flags of a pod-manager that works at this level, as far as the driver allows.
    pub(super) fn manager_flags(self, simulated: bool) -> Vec<String> {
        let flags: &[&str] = match self {
            Self::Full if simulated => &["--controls=simulated"],
            Self::Full => &["--controls=auto"],
            Self::Host | Self::Device | Self::MpsGate => &["--controls=off", "--gates=auto"],
        };
        flags.iter().map(|flag| (*flag).to_owned()).collect()
    }

    /// Further flags of the best-effort process: the default stream has no gates.
    pub(super) fn best_effort_flags(self) -> &'static [&'static str] {
        if self == Self::Host { &["--default-stream"] } else { &[] }
    }

    /// Fails, naming the levels that the manager reports, if the manager works at a lower or a higher level than this.
    pub(super) fn check(self, achieved: &BTreeMap<String, u64>) -> Result<(), NotAchieved> {
        let held = |by: &str| achieved.get(by).is_some_and(|processes| *processes > 0);
        let (wanted, is_so) = match self {
            Self::Host => ("host alone", held("host") && !held("turn") && !held("device")),
            Self::Full => ("turn", held("turn")),
            Self::Device | Self::MpsGate => ("device alone", held("device") && !held("turn")),
        };
        if is_so {
            return Ok(());
        }
        let reported = achieved.iter().map(|(level, processes)| format!("{processes} by {level}"));
        Err(NotAchieved { wanted, reported: reported.collect::<Vec<_>>().join(", ") })
    }
}

/// The manager does not work at the requested level.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("best effort should be held by {wanted}; the manager reports: {reported}")]
pub(super) struct NotAchieved {
    wanted: &'static str,
    reported: String,
}

/// Processes by the level that enforces their share, from the manager's metrics; levels without a process are left out.
pub(super) fn achieved(metrics: SocketAddr) -> anyhow::Result<BTreeMap<String, u64>> {
    Ok(levels(&Metrics::scrape(metrics)?))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, not negative")]
fn levels(metrics: &Metrics) -> BTreeMap<String, u64> {
    let levels = metrics.by_label("sluice_level", "level").into_iter();
    levels.map(|(level, count)| (level, count as u64)).filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_from_metrics_and_compared() {
        let text = "# HELP sluice_level x\nsluice_level{level=\"turn\"} 2\nsluice_level{level=\"token\"} 0\nsluice_levels 7\n";
        let achieved = levels(&Metrics::parse(text));
        assert_eq!(achieved, BTreeMap::from([("turn".to_owned(), 2)]));
        assert!(PreemptionLevel::Full.check(&achieved).is_ok());
        let why = PreemptionLevel::Device.check(&achieved).unwrap_err().to_string();
        assert!(why.contains("2 by turn"), "{why}");
    }

    #[test]
    fn a_row_is_measured_only_at_its_own_level() {
        let by = |levels: &[&str]| levels.iter().map(|level| ((*level).to_owned(), 1)).collect();
        let (hardware_scheduled, gated, queued) =
            (by(&["turn", "token"]), by(&["device", "token"]), by(&["host", "token"]));
        let tokens = by(&["token"]);
        let levels =
            [PreemptionLevel::Host, PreemptionLevel::Device, PreemptionLevel::MpsGate, PreemptionLevel::Full];
        let is_at = |achieved| levels.map(|level| level.check(achieved).is_ok());
        assert_eq!(is_at(&hardware_scheduled), [false, false, false, true]);
        assert_eq!(is_at(&gated), [false, true, true, false]);
        assert_eq!(is_at(&queued), [true, false, false, false]);
        assert_eq!(is_at(&tokens), [false; 4]);
        assert_eq!(is_at(&by(&["turn", "device"])), [false, false, false, true]);
    }
}
