//! What can be done to a channel group.

use super::policy::DEFAULT_SLICE_US;

/// A channel group, as its owner numbers it. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// The wanted or the actual setting of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Its channels may run.
    pub enabled: bool,
    /// Its time slice: how long it may run while another group waits, microseconds.
    pub slice_us: u64,
}

impl Setting {
    /// The setting that the driver gives to a new group.
    pub const FREE: Self = Self { enabled: true, slice_us: DEFAULT_SLICE_US };
}

/// One kind of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlOp {
    /// Set the time slice, microseconds.
    SetSlice(u64),
    /// Disable its channels: no work of the group runs when the control returns.
    Disable,
    /// Enable its channels.
    Enable,
}

impl ControlOp {
    /// Every label, in the order of [`Self::index`].
    pub const LABELS: [&'static str; 3] = ["slice", "stop", "start"];

    /// Position in [`Self::LABELS`].
    pub const fn index(self) -> usize {
        match self {
            Self::SetSlice(_) => 0,
            Self::Disable => 1,
            Self::Enable => 2,
        }
    }
}

/// One control to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Control {
    /// The group.
    pub group: GroupId,
    /// The operation.
    pub op: ControlOp,
}

/// Result of a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlOutcome {
    /// The driver reported success.
    Done,
    /// The driver refused, or the result is unknown.
    Failed,
    /// The driver knows no such group: its context was destroyed.
    Gone,
}

impl ControlOutcome {
    /// Every label, in the order of [`Self::index`].
    pub const LABELS: [&'static str; 3] = ["done", "failed", "gone"];

    /// Position in [`Self::LABELS`].
    pub const fn index(self) -> usize {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Gone => 2,
        }
    }
}
