//! The doctor's report: findings, each with a status and the next step to take, the overall result, and the enforcement level that
//! this machine allows.

use std::fmt;
use std::process::ExitCode;

use serde::Serialize;
use sluice_nvrm::self_test::Effect;

use super::child::Reported;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub(super) enum CheckStatus {
    /// As required.
    Ok,
    /// Sluice works, without a feature.
    Degraded,
    /// Sluice does not work.
    #[strum(serialize = "BROKEN")]
    Broken,
    /// Tried without a clear result.
    #[strum(serialize = "unclear")]
    Inconclusive,
    /// Not tried, because an earlier check failed or because it does not apply.
    Skipped,
}

/// One check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Its name, for scripts.
    pub(super) check: &'static str,
    #[serde(rename = "standing")]
    pub(super) status: CheckStatus,
    pub(super) found: String,
    /// Next step for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, status: CheckStatus::Ok, found: found.into(), next: None }
    }

    pub(super) fn skipped(check: &'static str, why: impl Into<String>) -> Self {
        Self { check, status: CheckStatus::Skipped, found: why.into(), next: None }
    }

    /// A check with a next step.
    pub(super) fn of(
        check: &'static str,
        status: CheckStatus,
        found: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self { check, status, found: found.into(), next: Some(next.into()) }
    }
}

/// All findings.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    /// The worst of the findings; an inconclusive check counts as degraded.
    #[serde(rename = "verdict")]
    pub(super) overall: CheckStatus,
    /// The strongest enforcement that this machine allows.
    pub(super) level: EnforcementLevel,
    /// The reason, and what is missing for the next level.
    pub(super) why: String,
    pub(super) checks: Vec<Finding>,
    /// Facts that driver and NVML report.
    #[serde(rename = "said")]
    pub(super) reported: Reported,
    pub(super) seconds: f64,
}

impl Report {
    pub(super) fn new(
        checks: Vec<Finding>,
        (level, why): (EnforcementLevel, String),
        reported: Reported,
        seconds: f64,
    ) -> Self {
        let has = |status| checks.iter().any(|check| check.status == status);
        let overall = if has(CheckStatus::Broken) {
            CheckStatus::Broken
        } else if has(CheckStatus::Degraded) || has(CheckStatus::Inconclusive) {
            CheckStatus::Degraded
        } else {
            CheckStatus::Ok
        };
        Self { overall, level, why, checks, reported, seconds }
    }

    /// 0 ok, 1 degraded, 2 broken.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self.overall {
            CheckStatus::Broken => ExitCode::from(2),
            CheckStatus::Degraded | CheckStatus::Inconclusive => ExitCode::from(1),
            CheckStatus::Ok | CheckStatus::Skipped => ExitCode::SUCCESS,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { check, status, found, next } in &self.checks {
            writeln!(f, "{status:9} {check:20} {found}")?;
            if let Some(next) = next {
                writeln!(f, "{:30} -> {next}", "")?;
            }
        }
        write!(f, "\n{}: level {}. {} ({:.1} s)", self.overall, self.level, self.why, self.seconds)
    }
}

/// Enforcement of shares, from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub(super) enum EnforcementLevel {
    None,
    /// Programs request tokens; that they wait for them was not proven.
    Token,
    /// Launches wait in the program's own process.
    Host,
    /// Submitted work waits on the GPU at stream gates.
    Device,
    /// Running work is stopped and sliced by channel-group controls.
    Full,
}

/// Proven effects, or the reasons why they were not proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proofs {
    /// A program under the hook has attached to the manager.
    pub(super) attached: Result<(), String>,
    /// Without a grant it launches nothing.
    pub(super) waits: Effect,
    /// A stream waits for a word in memory.
    pub(super) gate: Result<(), String>,
    /// The hook announces every channel group.
    pub(super) groups: Result<(), String>,
    /// Under MPS tenants share a context, so they have no channel groups of their own.
    pub(super) is_shared: bool,
    pub(super) stops: Effect,
    pub(super) slices: Effect,
}

/// The level and its reason, with what is missing for the next level.
pub(super) fn decide(proofs: &Proofs) -> (EnforcementLevel, String) {
    if let Err(why) = &proofs.attached {
        return (EnforcementLevel::None, format!("The hook does not reach a manager: {why}"));
    }
    if !proofs.waits.is_proven() {
        return (EnforcementLevel::Token, format!("Not host: a program without a grant: {}", proofs.waits));
    }
    match (full(proofs), &proofs.gate) {
        (Ok(reason), _) => (EnforcementLevel::Full, reason),
        (Err(why), Ok(())) => (EnforcementLevel::Device, format!("Not full: {why}")),
        (Err(why), Err(gate)) => (EnforcementLevel::Host, format!("Not full: {why}. Not device: {gate}")),
    }
}

fn full(proofs: &Proofs) -> Result<String, String> {
    if proofs.is_shared {
        return Err("under MPS channel groups belong to several tenants".to_owned());
    }
    proofs.groups.clone()?;
    if !proofs.stops.is_proven() {
        return Err(format!("stopping a channel group (DISABLE_CHANNELS): {}", proofs.stops));
    }
    if proofs.slices.is_proven() {
        Ok("Channel groups are stopped, started and sliced from outside".to_owned())
    } else {
        Ok(format!(
            "Channel groups are stopped and started from outside; time slices (SET_TIMESLICE): {}",
            proofs.slices
        ))
    }
}

#[cfg(test)]
mod tests;
