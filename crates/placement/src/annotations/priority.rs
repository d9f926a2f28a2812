//! The four priorities.

use std::fmt;

/// Priority of a pod, most urgent first. Each pod receives its request whatever the priorities of others. GPU time beyond
/// the requests goes to the best priority first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Runs at once: it pre-empts all others by time slice.
    LatencyCritical,
    /// Runs before the two below. From here on, pods pre-empt each other when a quantum ends.
    High,
    /// Runs before best-effort pods.
    Normal,
    /// Receives what the others leave, and its request.
    #[default]
    BestEffort,
}

impl Priority {
    /// All priorities; the position is the number that may replace the name.
    pub const ALL: [Self; 4] = [Self::LatencyCritical, Self::High, Self::Normal, Self::BestEffort];

    /// By name or number.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter().zip(["0", "1", "2", "3"]);
        all.find(|(priority, number)| priority.name() == text || *number == text)
            .map(|(priority, _)| priority)
    }

    /// The name in annotations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LatencyCritical => "latency-critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::BestEffort => "best-effort",
        }
    }

    /// Whether pods of this priority run before all others.
    #[must_use]
    pub const fn is_latency_critical(self) -> bool {
        matches!(self, Self::LatencyCritical)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
