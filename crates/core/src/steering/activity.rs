//! Whether a process has work on the GPU, as it says itself.

/// What a process says of itself. It is believed where that can only harm itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Activity {
    /// Work was submitted and is not known to have finished.
    pub busy: bool,
    /// Since when.
    pub since_ns: u64,
}

impl Activity {
    /// What is assumed of a process that says nothing.
    pub const UNKNOWN: Self = Self { busy: true, since_ns: 0 };

    /// How long it has been idle at `now`, if it is.
    #[must_use]
    pub const fn idle_for(self, now: u64) -> Option<u64> {
        if self.busy { None } else { Some(now.saturating_sub(self.since_ns)) }
    }

    /// What of it can be true at `now`: nobody can say since when of what is yet to come.
    #[must_use]
    pub fn known_at(self, now: u64) -> Self {
        Self { since_ns: self.since_ns.min(now), ..self }
    }
}
