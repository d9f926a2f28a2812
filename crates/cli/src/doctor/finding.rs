//! What the doctor says: findings, each with a standing and the next step to take, and what follows from all of them.

use std::fmt;
use std::process::ExitCode;

use serde::Serialize;

use super::child::Said;
use super::level::Level;

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    /// As it should be.
    Ok,
    /// Sluice works, with less than it could.
    Degraded,
    /// Sluice does not work.
    Broken,
    /// Tried, and not to be told.
    Inconclusive,
    /// Not tried, because something before it failed or because it does not apply.
    Skipped,
}

/// One check and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Its name, for scripts.
    pub(super) check: &'static str,
    pub(super) standing: Standing,
    /// What was seen.
    pub(super) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

impl Finding {
    /// All is well.
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, standing: Standing::Ok, found: found.into(), next: None }
    }

    /// Not tried.
    pub(super) fn skipped(check: &'static str, why: impl Into<String>) -> Self {
        Self { check, standing: Standing::Skipped, found: why.into(), next: None }
    }

    /// Something to do.
    pub(super) fn of(
        check: &'static str,
        standing: Standing,
        found: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self { check, standing, found: found.into(), next: Some(next.into()) }
    }
}

/// Everything that was found.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    /// The worst of the findings; a check that could not tell counts as degraded.
    pub(super) verdict: Standing,
    /// What holds tenants to their shares here, at best.
    pub(super) level: Level,
    /// What it rests on, and what is missing for the level above.
    pub(super) why: String,
    pub(super) checks: Vec<Finding>,
    /// What driver and NVML say of themselves.
    pub(super) said: Said,
    /// Time that it took.
    pub(super) seconds: f64,
}

impl Report {
    /// Puts the findings together.
    pub(super) fn new(checks: Vec<Finding>, (level, why): (Level, String), said: Said, seconds: f64) -> Self {
        let has = |standing| checks.iter().any(|check| check.standing == standing);
        let verdict = if has(Standing::Broken) {
            Standing::Broken
        } else if has(Standing::Degraded) || has(Standing::Inconclusive) {
            Standing::Degraded
        } else {
            Standing::Ok
        };
        Self { verdict, level, why, checks, said, seconds }
    }

    /// 0 ok, 1 degraded, 2 broken.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self.verdict {
            Standing::Broken => ExitCode::from(2),
            Standing::Degraded | Standing::Inconclusive => ExitCode::from(1),
            Standing::Ok | Standing::Skipped => ExitCode::SUCCESS,
        }
    }
}

impl fmt::Display for Standing {
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
        for Finding { check, standing, found, next } in &self.checks {
            writeln!(f, "{standing:9} {check:20} {found}")?;
            if let Some(next) = next {
                writeln!(f, "{:30} -> {next}", "")?;
            }
        }
        write!(f, "\n{}: level {}. {} ({:.1} s)", self.verdict, self.level, self.why, self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silence() -> Said {
        Said { driver: Err(String::new()), nvml: Err(String::new()) }
    }

    fn verdict(standings: &[Standing]) -> Standing {
        let checks = standings.iter().map(|standing| Finding::of("x", *standing, "", "")).collect();
        Report::new(checks, (Level::None, String::new()), silence(), 0.0).verdict
    }

    #[test]
    fn the_worst_finding_decides_and_what_cannot_be_told_is_not_well() {
        use Standing::{Broken, Degraded, Inconclusive, Ok, Skipped};
        assert_eq!(verdict(&[Ok, Skipped, Ok]), Ok);
        assert_eq!(verdict(&[Ok, Inconclusive]), Degraded);
        assert_eq!(verdict(&[Degraded, Ok]), Degraded);
        assert_eq!(verdict(&[Degraded, Broken, Inconclusive]), Broken);
    }

    #[test]
    fn a_finding_with_a_next_step_shows_it() {
        let finding = Finding::of("mig_mode", Standing::Broken, "MIG is on", "nvidia-smi -mig 0");
        let text = Report::new(vec![finding], (Level::None, "nothing".into()), silence(), 1.0).to_string();
        assert!(text.contains("MIG is on") && text.contains("-> nvidia-smi -mig 0"), "{text}");
    }
}
