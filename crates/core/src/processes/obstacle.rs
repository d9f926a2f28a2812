//! Why the groups of a process cannot be controlled.

/// The kind of reason why the groups of a process are not controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObstacleKind {
    /// Its descriptors cannot be copied: CAP_SYS_PTRACE or CAP_DAC_READ_SEARCH is missing.
    NotPermitted,
    /// It has the driver open, and no channel group was found. It may not compute at all.
    NoGroups,
    /// It has more descriptors or groups than any program needs, or new ones too often.
    TooMany,
    /// The driver returned an unexpected answer, or the process has more objects or channels than are searched.
    Driver,
    /// A control of it has failed, and none has succeeded since.
    ControlFailed,
}

impl ObstacleKind {
    /// All labels, in the order of [`Self::index`].
    pub const LABELS: [&'static str; 5] =
        ["not_permitted", "no_groups", "too_many", "driver", "control_failed"];

    /// Index in [`Self::LABELS`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the driver's lock can stop the process instead: it has groups, and the manager has access to it.
    pub const fn can_be_locked(self) -> bool {
        matches!(self, Self::TooMany | Self::Driver)
    }

    /// An obstacle of this kind with a text.
    pub fn because(self, text: impl Into<String>) -> Obstacle {
        Obstacle { kind: self, text: text.into() }
    }

    /// The label in logs and metrics.
    pub const fn label(self) -> &'static str {
        Self::LABELS[self.index()]
    }
}

/// Why the groups of a process are not controlled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{text}")]
pub struct Obstacle {
    /// The kind of reason.
    pub kind: ObstacleKind,
    /// The reason in words.
    pub text: String,
}
