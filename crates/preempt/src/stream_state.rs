//! The states of a queue and the ways between them.

/// Where a queue is between running and preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum State {
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
pub enum Move {
    /// `preempt` was called.
    Preempt,
    /// What was submitted has stopped.
    Stopped,
    /// What was submitted goes on, behind a shut door.
    Yield,
    /// `restore` was called, a lease ended, or a preemption was rolled back.
    Restore,
    /// Gates and slices are open.
    Opened,
}

impl State {
    /// The state after `what`; `None` where it changes nothing.
    pub fn after(self, what: Move) -> Option<Self> {
        match (self, what) {
            (Self::Running | Self::Restoring, Move::Preempt) => Some(Self::Preempting),
            (Self::Preempting, Move::Stopped) => Some(Self::Preempted),
            (Self::Preempted, Move::Yield) => Some(Self::Preempting),
            (Self::Preempting | Self::Preempted, Move::Restore) => Some(Self::Restoring),
            (Self::Restoring, Move::Opened) => Some(Self::Running),
            _ => None,
        }
    }

    /// Whether somebody preempted the queue and nobody has restored it.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Preempting | Self::Preempted)
    }
}
