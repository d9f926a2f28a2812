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
    /// By grants alone: submitted work runs to its end
    Token,
    /// By time slices: in the middle of a kernel
    Full,
}

impl PreemptionLevel {
    /// Name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Flags of a pod-manager that works at this level, as far as the driver allows.
    pub(super) fn manager_flags(self, simulated: bool) -> Vec<String> {
        let flags: &[&str] = match self {
            Self::Full if simulated => &["--controls=simulated"],
            Self::Full => &["--controls=auto"],
            Self::Token => &["--controls=off"],
        };
        flags.iter().map(|flag| (*flag).to_owned()).collect()
    }

    /// Fails, naming the levels that the manager reports, if the manager works at a lower or a higher level than this.
    pub(super) fn check(self, achieved: &BTreeMap<String, u64>) -> Result<(), NotAchieved> {
        let held = |by: &str| achieved.get(by).is_some_and(|processes| *processes > 0);
        let (wanted, is_so) = match self {
            Self::Token => ("token alone", held("token") && !held("turn")),
            Self::Full => ("turn", held("turn")),
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
mod tests;
