//! The doctor's report: findings, each with a status and the next step to take, and the overall result.

use std::fmt;
use std::process::ExitCode;

use serde::Serialize;

use super::child::Reported;
use super::enforcement_level::EnforcementLevel;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckStatus {
    /// As required.
    Ok,
    /// Sluice works, without a feature.
    Degraded,
    /// Sluice does not work.
    Broken,
    /// Tried without a clear result.
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
    /// Observation.
    pub(super) found: String,
    /// Next step for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

impl Finding {
    /// A check that passed.
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, status: CheckStatus::Ok, found: found.into(), next: None }
    }

    /// A check that was not tried.
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
    /// Duration.
    pub(super) seconds: f64,
}

impl Report {
    /// Computes the overall result.
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

impl fmt::Display for CheckStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Broken => "BROKEN",
            Self::Inconclusive => "unclear",
            Self::Skipped => "skipped",
        })
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

#[cfg(test)]
mod tests;
