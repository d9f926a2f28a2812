//! What can be done to a channel group.

use super::policy::DEFAULT_US;

/// A channel group, as its owner numbers it; a number is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// How a group is to be, or is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Its channels may run.
    pub enabled: bool,
    /// How long it may run while another group waits, microseconds.
    pub slice_us: u64,
}

impl Setting {
    /// As the driver makes it.
    pub const FREE: Self = Self { enabled: true, slice_us: DEFAULT_US };
}

/// One kind of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Set the time slice, microseconds.
    SetSlice(u64),
    /// Stop its channels: nothing of it runs when this returns.
    Stop,
    /// Start its channels.
    Start,
}

impl Op {
    /// Every label, in the order of [`Self::index`].
    pub const LABELS: [&'static str; 3] = ["slice", "stop", "start"];

    /// Position in [`Self::LABELS`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::SetSlice(_) => 0,
            Self::Stop => 1,
            Self::Start => 2,
        }
    }
}

/// One control to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Control {
    /// Whose.
    pub group: GroupId,
    /// What.
    pub op: Op,
}

/// What became of a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The driver says that it is done.
    Done,
    /// The driver refused, or nothing is known.
    Failed,
    /// The driver knows no such group: its context was destroyed.
    Gone,
}
