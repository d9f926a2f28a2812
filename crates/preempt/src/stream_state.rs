//! The states of a preemptible stream, and the transitions between them.

/// Where a stream is between running and preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum StreamState {
    /// Calls go to the driver.
    #[default]
    Running,
    /// Nothing more is submitted. What was submitted is still running.
    Preempting,
    /// The stream has stopped.
    Preempted,
    /// Gates are being opened and the channel group enabled. Nothing is submitted yet.
    Restoring,
}

/// What may happen to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transition {
    /// `preempt` was called.
    Preempt,
    /// Submitted work has stopped.
    Stopped,
    /// Submitted work continues, while admission stays closed.
    Yield,
    /// `restore` was called, the longest outage was over, or a preemption was rolled back.
    Restore,
    /// Gates are open and the channel group is enabled.
    Opened,
}

impl StreamState {
    /// The state after `what`; `None` if the transition changes nothing.
    pub fn after(self, what: Transition) -> Option<Self> {
        match (self, what) {
            (Self::Running | Self::Restoring, Transition::Preempt) => Some(Self::Preempting),
            (Self::Preempting, Transition::Stopped) => Some(Self::Preempted),
            (Self::Preempted, Transition::Yield) => Some(Self::Preempting),
            (Self::Preempting | Self::Preempted, Transition::Restore) => Some(Self::Restoring),
            (Self::Restoring, Transition::Opened) => Some(Self::Running),
            _ => None,
        }
    }

    /// Whether a `preempt` call is in effect that no `restore` has ended.
    pub fn is_under_preemption(self) -> bool {
        matches!(self, Self::Preempting | Self::Preempted)
    }
}
