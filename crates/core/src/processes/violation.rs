//! Violations: what a process was found to do against its client's limits, and what follows by the operator's choice.

use crate::channel_groups::GroupId;
use crate::share::Share;

/// The kind of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ViolationKind {
    /// An attached process has channel groups that it has not announced: a second driver library, or an attach without the hook. Its groups
    /// are scheduled from outside from then on.
    UnannouncedGroups,
    /// A process has more descriptors than any program needs, so its groups cannot be found.
    TooManyDescriptors,
    /// A channel group ran while the manager had disabled it: the process has enabled it by a control of its own.
    StoppedGroupRan,
    /// A channel group has another time slice than the manager has set.
    TimeSlice,
    /// The page that an attached process maps as its grant page is not the one that the manager has sent.
    GrantPage,
    /// The client's processes have more memory on the GPU than its limit: charges that were released falsely, memory of processes without
    /// the hook, large global variables, or contexts that began near the limit.
    MemoryLimit,
}

impl ViolationKind {
    /// All labels, in the order of [`Self::index`].
    pub const LABELS: [&'static str; 6] = [
        "unannounced_groups",
        "too_many_descriptors",
        "stopped_group_ran",
        "time_slice",
        "grant_page",
        "memory_limit",
    ];

    /// Index in [`Self::LABELS`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The label in logs, metrics and Events.
    pub const fn label(self) -> &'static str {
        Self::LABELS[self.index()]
    }
}

/// What a check of channel groups has found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupFinding {
    /// The group.
    pub group: GroupId,
    /// What its process has done.
    pub kind: ViolationKind,
    /// The same in words.
    pub what: String,
    /// For a time slice, which checks have read it: one check reads a part of the groups.
    pub checks: Option<Checks>,
}

/// The check that has read a time slice, and the one that had read it before. The slice was changed between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checks {
    /// This check.
    pub current: u64,
    /// The one before it.
    pub before: u64,
}

/// The operator's choice. It concerns violations of which the manager cannot restore the limit for good; the others are counted only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ViolationPolicy {
    /// [`Self::Stop`] for a client with a limit below the whole GPU, otherwise [`Self::Report`].
    #[default]
    Auto,
    /// The violation is counted, logged and reported to the node agent.
    Report,
    /// The process is stopped for a time.
    Stop,
    /// The node agent evicts the pod. The process is stopped meanwhile, as by [`Self::Stop`].
    Evict,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consequence {
    /// The violation is counted, logged and reported.
    Report,
    /// The process is stopped, too.
    Stop,
    /// The pod is evicted. Meanwhile the process is stopped, unless it is latency-critical or has no group under control.
    Evict,
}

impl ViolationPolicy {
    /// What follows for a client with this limit.
    pub(super) fn consequence(self, limit: Share) -> Consequence {
        match self {
            Self::Auto if limit < Share::ONE => Consequence::Stop,
            Self::Auto | Self::Report => Consequence::Report,
            Self::Stop => Consequence::Stop,
            Self::Evict => Consequence::Evict,
        }
    }
}
