//! Whether a process has work on the GPU, as the process reports it.

/// Activity that a process reports. It is used only where a false report harms the reporting process alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Activity {
    /// Work was submitted and is not known to have finished.
    pub busy: bool,
    /// When `busy` last changed, nanoseconds.
    pub since_ns: u64,
}

impl Activity {
    /// Assumed of a process that reports nothing.
    pub const UNKNOWN: Self = Self { busy: true, since_ns: 0 };

    /// How long the process has been idle at `now`; `None` while it is busy.
    #[must_use]
    pub const fn idle_for(self, now: u64) -> Option<u64> {
        if self.busy { None } else { Some(now.saturating_sub(self.since_ns)) }
    }

    /// The activity with `since_ns` limited to `now`: a reported time in the future is not possible.
    #[must_use]
    pub fn known_at(self, now: u64) -> Self {
        Self { since_ns: self.since_ns.min(now), ..self }
    }
}
