//! Programs of our clients' pods that run without our hook: found by their cgroup and their open control device, reached by copies of
//! their descriptors, and steered like those who announce their groups.
//!
//! Looking is the affair of a thread of its own ([`Adopter`]): it reads /proc and asks the driver thousands of questions. The data plane
//! says when to look, for which pods, and who has attached by himself: nobody else's processes are ever touched.

mod claim;
mod keeper;
mod kernel;
mod lock;
mod look;
mod processes;
mod purse;
mod thread;
mod watch;

pub use claim::Claim;
pub(crate) use claim::Proof;
pub use kernel::KernelScout;
pub(crate) use lock::Locks;
pub(crate) use look::{Look, Reached, Sighted, Unreached};
pub(crate) use thread::Adopter;

use sluice_comm::attach::ContextHandles;
use sluice_core::pod_cgroup::PodCgroup;
use std::collections::HashSet;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

/// A process's number and when it started, in clock ticks since boot.
pub use sluice_nvrm::outside::ProcessKey;

/// A process of a pod that has the driver open.
#[derive(Debug)]
pub struct Candidate {
    /// Its number and its start.
    pub key: ProcessKey,
    /// What it calls itself: for messages only.
    pub command: String,
    /// Where it is. Seen after the pidfd was opened, so it is this process's and no later one's.
    pub pod: PodCgroup,
    /// Readable when it ends.
    pub pidfd: OwnedFd,
    /// The numbers of its descriptors that may lead to the driver; if they change it is looked at again.
    pub descriptors: Vec<RawFd>,
}

/// A way to the driver that a process has open.
#[derive(Debug)]
pub struct Way {
    /// A copy of the process's descriptor.
    pub descriptor: OwnedFd,
    /// The groups behind it, on this GPU.
    pub contexts: Vec<ContextHandles>,
}

impl Way {
    /// Client and group of each, as the driver names them.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (u32, u32)> {
        self.contexts.iter().map(|context| (context.client, context.channel_group))
    }
}

/// Why a process's groups are not controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// Its descriptors cannot be copied: CAP_SYS_PTRACE or CAP_DAC_READ_SEARCH is missing.
    NotPermitted,
    /// It has the driver open, and no channel group is found. It may not compute at all.
    NoGroups,
    /// It has more descriptors or groups than anybody needs, or new ones too often.
    TooMany,
    /// The driver says something else than expected.
    Driver,
    /// A control of its client has failed.
    ControlFailed,
}

impl Why {
    /// Every label, in the order of [`Self::index`].
    pub const LABELS: [&'static str; 5] =
        ["not_permitted", "no_groups", "too_many", "driver", "control_failed"];

    /// Position in [`Self::LABELS`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the process has groups all the same, so that the driver's lock is worth a try. Who is not let into its descriptors
    /// is not let lock it either.
    pub(crate) const fn can_be_locked(self) -> bool {
        matches!(self, Self::TooMany | Self::Driver)
    }

    /// With words for it.
    pub(crate) fn because(self, text: impl Into<String>) -> Obstacle {
        Obstacle { why: self, text: text.into() }
    }

    /// For logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        Self::LABELS[self.index()]
    }
}

/// Why a process could not be reached, and what exactly was in the way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Obstacle {
    /// What kind of reason it is.
    pub why: Why,
    /// In words.
    pub text: String,
}

/// Finds processes and their ways to the driver. Called on a thread of its own: it may take its time.
pub trait Scout: Send {
    /// The processes of these pods, by uid, that have the driver open, had it open, or cannot be looked into.
    ///
    /// # Errors
    /// Not all could be looked at, for want of something of ours: who is missing is not known.
    fn candidates(&mut self, pods: &HashSet<String>) -> io::Result<Vec<Candidate>>;

    /// The groups of a process on this GPU, all that it has now. None if it has closed the driver.
    ///
    /// # Errors
    /// Why they cannot be controlled. All can or none: a process of which a part goes on does not stand.
    fn reach(&mut self, candidate: &Candidate) -> Result<Vec<Way>, Obstacle>;

    /// Whether a process has what it has announced.
    ///
    /// # Errors
    /// Why that cannot be told.
    fn proves(&mut self, _: &Claim) -> Result<bool, Obstacle> {
        Ok(true)
    }

    /// Questions that the driver was asked by [`Self::reach`] since this was called last.
    fn take_asked(&mut self) -> u32 {
        0
    }

    /// Looks on for what was not found at once, within a budget of its own, and says of which processes there is more to reach.
    fn search(&mut self, _: &[Candidate]) -> HashSet<ProcessKey> {
        HashSet::new()
    }
}
