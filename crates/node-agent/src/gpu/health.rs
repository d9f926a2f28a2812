//! One GPU's health: what state it is in, and what an observation makes of it. Time is nanoseconds of any monotonic clock.
//!
//! ```text
//!              critical Xid, bad look                        good look
//!   Healthy ───────────────────────────► Unhealthy ───────────────────────────► Recovering { good_looks }
//!      ▲                                     ▲    critical Xid, bad look            │        │
//!      │                                     └──────────────────────────────────────┘        │
//!      └─────────────────────────────── as many good looks in a row as are needed ───────────┘
//! ```
//! A look is good only if the driver asks for no recovery action, so a GPU that needs a reset stays unhealthy until
//! it had one; where a driver does not know recovery actions, the looks alone decide.

use std::fmt;
use std::num::NonZeroU32;

use super::xid;

/// Why a GPU may not be given to pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sickness {
    /// The driver reported this Xid.
    Xid(u64),
    /// The GPU does not answer any more.
    Lost,
    /// The driver says that something must be done first.
    NeedsRecovery(Recovery),
    /// The driver does not list it any more.
    Vanished,
    /// It is in MIG mode now.
    Mig,
    /// A question about it failed in some other way.
    Failed(String),
    /// The driver as a whole does not answer.
    NoDriver(String),
}

impl fmt::Display for Sickness {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sickness::Xid(code) => out.write_str(&xid::describe(*code)),
            Sickness::Lost => out.write_str("GPU is lost: it does not answer the driver"),
            Sickness::NeedsRecovery(recovery) => write!(out, "the driver asks for recovery: {recovery}"),
            Sickness::Vanished => out.write_str("the driver no longer lists this GPU"),
            Sickness::Mig => out.write_str("GPU is in MIG mode"),
            Sickness::Failed(why) => write!(out, "asking the GPU failed: {why}"),
            Sickness::NoDriver(why) => write!(out, "the NVIDIA driver does not answer: {why}"),
        }
    }
}

/// What the driver wants done before the GPU is used again (`nvmlDeviceGpuRecoveryAction_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Reset the GPU.
    Reset,
    /// Reboot the node.
    Reboot,
    /// Stop traffic between GPUs.
    DrainPeers,
    /// Let its work end, then reset it.
    DrainAndReset,
    /// Something that this code does not know.
    Other(u64),
}

impl Recovery {
    /// From the driver's number; none if nothing needs to be done.
    pub fn from_code(code: u64) -> Option<Self> {
        match code {
            0 => None,
            1 => Some(Recovery::Reset),
            2 => Some(Recovery::Reboot),
            3 => Some(Recovery::DrainPeers),
            4 => Some(Recovery::DrainAndReset),
            other => Some(Recovery::Other(other)),
        }
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Recovery::Reset => out.write_str("reset the GPU"),
            Recovery::Reboot => out.write_str("reboot the node"),
            Recovery::DrainPeers => out.write_str("stop traffic between GPUs"),
            Recovery::DrainAndReset => out.write_str("let its work end, then reset the GPU"),
            Recovery::Other(code) => write!(out, "recovery action {code}"),
        }
    }
}

/// A GPU's state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// Pods may get it.
    #[default]
    Healthy,
    /// Pods may not.
    Unhealthy {
        /// Why.
        reason: Sickness,
        /// Since when it has not been healthy.
        since_ns: u64,
    },
    /// It answers again, but not yet for long enough: pods may not get it.
    Recovering {
        /// What was wrong.
        reason: Sickness,
        /// Since when it has not been healthy.
        since_ns: u64,
        /// Good looks in a row so far, at least one.
        good_looks: NonZeroU32,
    },
}

/// What was seen or heard of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// A look found nothing wrong.
    Good,
    /// A look found this.
    Bad(Sickness),
    /// An Xid that is the GPU's fault.
    CriticalXid(u64),
}

impl Health {
    /// Whether pods may get the GPU.
    pub fn is_healthy(&self) -> bool {
        matches!(self, Health::Healthy)
    }

    /// Why not.
    pub fn reason(&self) -> Option<&Sickness> {
        match self {
            Health::Healthy => None,
            Health::Unhealthy { reason, .. } | Health::Recovering { reason, .. } => Some(reason),
        }
    }

    /// Since when not.
    pub fn since_ns(&self) -> Option<u64> {
        match self {
            Health::Healthy => None,
            Health::Unhealthy { since_ns, .. } | Health::Recovering { since_ns, .. } => Some(*since_ns),
        }
    }

    /// The state after an observation at this time, where so many good looks in a row are needed for recovery.
    #[must_use]
    pub fn after(self, observation: Observation, now_ns: u64, needed: NonZeroU32) -> Self {
        let since_ns = self.since_ns().unwrap_or(now_ns);
        match observation {
            Observation::CriticalXid(code) => Health::Unhealthy { reason: Sickness::Xid(code), since_ns },
            Observation::Bad(found) => Health::Unhealthy { reason: self.blame(found), since_ns },
            Observation::Good => self.one_more_good_look(needed),
        }
    }

    /// The Xid that began it says more than what looks find afterwards.
    fn blame(self, found: Sickness) -> Sickness {
        match self {
            Health::Unhealthy { reason: reason @ Sickness::Xid(_), .. }
            | Health::Recovering { reason: reason @ Sickness::Xid(_), .. } => reason,
            _ => found,
        }
    }

    fn one_more_good_look(self, needed: NonZeroU32) -> Self {
        let (reason, since_ns, good_looks) = match self {
            Health::Healthy => return Health::Healthy,
            Health::Unhealthy { reason, since_ns } => (reason, since_ns, NonZeroU32::MIN),
            Health::Recovering { reason, since_ns, good_looks } => {
                (reason, since_ns, good_looks.saturating_add(1))
            }
        };
        if good_looks >= needed {
            return Health::Healthy;
        }
        Health::Recovering { reason, since_ns, good_looks }
    }
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
