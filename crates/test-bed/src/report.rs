//! Results of a run: checks that hold or fail, each with its figures.

use std::fmt;

/// Checks in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Each statement with its figures, and whether it holds.
    checks: Vec<(bool, String)>,
}

impl Report {
    /// Adds a check.
    pub fn check(&mut self, ok: bool, text: impl Into<String>) {
        self.checks.push((ok, text.into()));
    }

    /// Whether all checks hold.
    pub fn is_ok(&self) -> bool {
        self.checks.iter().all(|(ok, _)| *ok)
    }

    /// The checks that failed, as an error.
    pub fn into_result(self) -> Result<(), String> {
        let failed = self.checks.into_iter().filter_map(|(ok, text)| (!ok).then_some(text));
        let failed: Vec<String> = failed.collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (ok, text) in &self.checks {
            writeln!(f, "  {}  {text}", if *ok { "ok    " } else { "FAILED" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
