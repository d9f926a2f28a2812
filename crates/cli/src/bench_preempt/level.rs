//! The levels: how a manager is told to use each, and how it says that it does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::http;

/// How best-effort work is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    /// By token and queue: what was submitted runs to its end
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
    ///
    /// # Errors
    /// If this build's manager cannot be told to.
    pub(super) fn manager_flags(self, simulated: bool, manager: Command) -> anyhow::Result<Vec<String>> {
        let gates = knows_gates(manager)?;
        let flags: &[&str] = match (self, gates) {
            (Self::Full, _) if simulated => &["--controls=simulated"],
            (Self::Full, _) => &["--controls=auto"],
            (Self::Host, true) => &["--controls=off", "--gates=off"],
            (Self::Host, false) => &["--controls=off"],
            (Self::Device | Self::MpsGate, true) => &["--controls=off", "--gates=auto"],
            (Self::Device | Self::MpsGate, false) => bail!("this pod-manager has no --gates"),
        };
        Ok(flags.iter().map(|flag| (*flag).to_owned()).collect())
    }

    /// Fails, saying what the manager says, if it does not work at this level.
    pub(super) fn check(self, achieved: &BTreeMap<String, u64>) -> Result<(), NotAchieved> {
        let wanted = match self {
            Self::Host => return Ok(()),
            Self::Full => "turn",
            Self::Device | Self::MpsGate => "device",
        };
        if achieved.get(wanted).is_some_and(|processes| *processes > 0) {
            return Ok(());
        }
        let said = achieved.iter().map(|(level, processes)| format!("{processes} by {level}"));
        Err(NotAchieved { wanted, said: said.collect::<Vec<_>>().join(", ") })
    }
}

/// The manager does not work at the level.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no process is held by {wanted}; the manager says: {said}")]
pub(super) struct NotAchieved {
    wanted: &'static str,
    said: String,
}

/// Whether `sluice pod-manager --help` names the flag.
fn knows_gates(mut manager: Command) -> anyhow::Result<bool> {
    let help = manager
        .args(["pod-manager", "--help"])
        .output()
        .context("cannot ask the pod-manager for its flags")?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--gates"))
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
}
