//! The four scheduling classes.

/// Scheduling class of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Class {
    /// Level 0: holds an unlimited grant from its first request on.
    LatencyCritical,
    /// Level 1: waits for grants, and is granted before the levels below.
    High,
    /// Level 2.
    Normal,
    /// Level 3: receives the time that the levels above leave, and its request.
    #[default]
    BestEffort,
}

impl Class {
    /// Every class, the best level first.
    pub const ALL: [Self; 4] = [Self::LatencyCritical, Self::High, Self::Normal, Self::BestEffort];

    /// Whether a client of this class holds an unlimited grant instead of waiting for grants with deadlines.
    #[must_use]
    pub const fn is_latency_critical(self) -> bool {
        matches!(self, Self::LatencyCritical)
    }

    /// The level: 0 is the best.
    #[must_use]
    pub const fn level(self) -> usize {
        self as usize
    }

    /// The name in resource files, annotations and metric labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}
