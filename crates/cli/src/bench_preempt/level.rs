//! The levels: how a manager is told to use each, and how it says that it does.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::http;

/// How best-effort work is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    /// By the queue in its own process: what was submitted runs to its end
    Host,
    /// By gates: what was submitted and has not begun does not begin
    Device,
    /// By time slices: in the middle of a kernel
    Full,
    /// By gates, all processes under one MPS server
    MpsGate,
}

impl Level {
    /// As on the command line.
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

    /// What best effort is told in addition: the driver's own stream is the one that has no gates.
    pub(super) fn best_effort_flags(self) -> &'static [&'static str] {
        if self == Self::Host { &["--default-stream"] } else { &[] }
    }

    /// Fails, saying what the manager says, if it works at a lower level than this, or at a higher one.
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
        let said = achieved.iter().map(|(level, processes)| format!("{processes} by {level}"));
        Err(NotAchieved { wanted, said: said.collect::<Vec<_>>().join(", ") })
    }
}

/// The manager does not work at the level.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("best effort should be held by {wanted}; the manager says: {said}")]
pub(super) struct NotAchieved {
    wanted: &'static str,
    said: String,
}

/// Processes by what holds them to their share, as the manager says; levels without a process are left out.
pub(super) fn achieved(metrics: SocketAddr) -> anyhow::Result<BTreeMap<String, u64>> {
    Ok(parse(&http::get(&metrics.to_string(), "/metrics")?))
}

fn parse(text: &str) -> BTreeMap<String, u64> {
    let levels = text.lines().filter_map(|line| {
        let (level, count) = line.strip_prefix("sluice_level{level=\"")?.split_once("\"} ")?;
        Some((level.to_owned(), count.trim().parse().ok()?))
    });
    levels.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_and_judged() {
        let text = "# HELP sluice_level x\nsluice_level{level=\"turn\"} 2\nsluice_level{level=\"token\"} 0\nsluice_levels 7\n";
        let achieved = parse(text);
        assert_eq!(achieved, BTreeMap::from([("turn".to_owned(), 2)]));
        assert!(Level::Full.check(&achieved).is_ok());
        let why = Level::Device.check(&achieved).unwrap_err().to_string();
        assert!(why.contains("2 by turn"), "{why}");
    }

    #[test]
    fn a_row_of_a_lower_level_is_not_measured_at_a_higher_one() {
        let by = |levels: &[&str]| levels.iter().map(|level| ((*level).to_owned(), 1)).collect();
        let (steered, gated, queued) =
            (by(&["turn", "token"]), by(&["device", "token"]), by(&["host", "token"]));
        let tokens = by(&["token"]);
        let levels = [Level::Host, Level::Device, Level::MpsGate, Level::Full];
        let is_at = |achieved| levels.map(|level| level.check(achieved).is_ok());
        assert_eq!(is_at(&steered), [false, false, false, true]);
        assert_eq!(is_at(&gated), [false, true, true, false]);
        assert_eq!(is_at(&queued), [true, false, false, false]);
        assert_eq!(is_at(&tokens), [false; 4]);
        assert_eq!(is_at(&by(&["turn", "device"])), [false, false, false, true]);
    }
}
