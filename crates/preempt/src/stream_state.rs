//! The states of a queue and the ways between them.

/// Where a queue is between running and preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum StreamState {
    /// Commands pass.
    #[default]
    Running,
    /// Nothing is submitted any more; what was submitted is still running.
    Preempting,
    /// The stream stands still.
    Preempted,
    /// Gates and slices are being opened; nothing is submitted yet.
    Restoring,
}

/// What may happen to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transition {
    /// `preempt` was called.
    Preempt,
    /// What was submitted has stopped.
    Stopped,
    /// What was submitted goes on, behind a shut admission.
    Yield,
    /// `restore` was called, a lease ended, or a preemption was rolled back.
    Restore,
    /// Gates and slices are open.
    Opened,
}

impl StreamState {
    /// The state after `what`; `None` where it changes nothing.
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

    /// Whether somebody preempted the queue and nobody has restored it.
    pub fn is_under_preemption(self) -> bool {
        matches!(self, Self::Preempting | Self::Preempted)
    }
}
