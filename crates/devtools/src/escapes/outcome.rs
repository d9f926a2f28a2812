//! The result of an attempt.

use std::fmt;

use serde::Serialize;

/// What an attempt came to. A later value is better for the other tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// The program gained something, and the manager did not detect it within a second.
    Open,
    /// The manager counted a violation within a second, or scheduled a process from outside.
    Detected,
    /// The program gained nothing.
    Blocked,
}

/// One row of the suite's result.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) expect: Verdict,
    pub(super) result: Verdict,
    /// Time from the attempt until the manager had counted a violation of its client, or scheduled a process of it from outside.
    pub(super) detected_ms: Option<u64>,
    /// Part of the GPU's used time that the program had.
    pub(super) gpu_share: f64,
    /// Memory beyond the limit of the program's pod, as NVML reports it.
    pub(super) memory_over_bytes: u64,
    /// How often it was made. The other fields are those of the last time.
    pub(super) attempts: u32,
}

impl Row {
    /// Whether the result is worse than expected.
    pub(super) fn is_worse(&self) -> bool {
        self.result < self.expect
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Open => "open",
            Self::Detected => "detected",
            Self::Blocked => "blocked",
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, result, detected_ms, gpu_share, memory_over_bytes, attempts, .. } = self;
        let detected = detected_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        let over = memory_over_bytes >> 20;
        write!(f, "{name:42} {result:9} {detected:>8}  {gpu_share:.2} of the GPU  {over} MiB over")?;
        if *attempts > 1 {
            write!(f, "  ({attempts} attempts)")?;
        }
        if self.is_worse() { write!(f, "  (expected {})", self.expect) } else { Ok(()) }
    }
}
