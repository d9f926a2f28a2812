//! Results of a run: checks that hold or fail, each with its figures.

use std::fmt;

/// One statement and whether it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// The statement holds.
    pub ok: bool,
    /// The statement with its figures.
    pub text: String,
}

/// Checks in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    checks: Vec<Check>,
}

impl Report {
    /// Adds a check.
    pub fn check(&mut self, ok: bool, text: impl Into<String>) {
        self.checks.push(Check { ok, text: text.into() });
    }

    /// The checks.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Whether all checks hold.
    pub fn is_ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// The checks that failed, as an error.
    ///
    /// # Errors
    /// If a check failed.
    pub fn into_result(self) -> Result<(), String> {
        let failed: Vec<String> =
            self.checks.into_iter().filter(|check| !check.ok).map(|check| check.text).collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Check { ok, text } in &self.checks {
            writeln!(f, "  {}  {text}", if *ok { "ok    " } else { "FAILED" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
