//! The health of one GPU: its state, and how an observation changes it. Time is nanoseconds of any monotonic clock.
//!
//! A fault (critical Xid, bad scan) makes it unhealthy; as many good scans in a row as are needed make it healthy again.
//! A scan is good only if the driver asks for no recovery action, so a GPU that needs a reset stays unhealthy until
//! it had one; where a driver does not know recovery actions, the scans alone decide.

use std::num::NonZeroU32;

use super::xid;

/// Why a GPU may not be given to pods.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The driver reported this Xid.
    #[error("{}", xid::describe(*.0))]
    Xid(u64),
    /// The GPU does not answer any more.
    #[error("GPU is lost: it does not answer the driver")]
    Lost,
    /// The driver requests a recovery action first.
    #[error("the driver asks for recovery: {0}")]
    NeedsRecovery(Recovery),
    /// The driver does not list it any more.
    #[error("the driver no longer lists this GPU")]
    Vanished,
    /// It is in MIG mode now.
    #[error("GPU is in MIG mode")]
    Mig,
    /// It is in MIG mode, its instances are to be given, and it has none.
    #[error("GPU is in MIG mode and has no instances")]
    NoInstances,
    /// It is an instance whose memory others use, too: several compute instances of one GPU instance.
    #[error("the instance is one of several compute instances of a GPU instance, which share its memory")]
    SharedMemory,
    /// Another query about it failed.
    #[error("querying the GPU failed: {0}")]
    Failed(String),
    /// The driver as a whole does not answer.
    #[error("the NVIDIA driver does not answer: {0}")]
    DriverUnavailable(String),
}

impl Fault {
    /// Whether a scan that finds this fault shows that no program can work on the GPU until it is reset, repaired or replaced.
    ///
    /// An Xid alone does not show it: a scan follows. While the driver does not answer, programs may go on. A GPU that needs to be drained
    /// works for the programs that it has.
    pub fn ends_work(&self) -> bool {
        match self {
            Fault::Lost
            | Fault::Vanished
            | Fault::Mig
            | Fault::NoInstances
            | Fault::NeedsRecovery(Recovery::Reset | Recovery::Reboot) => true,
            Fault::NeedsRecovery(Recovery::DrainPeers | Recovery::DrainAndReset | Recovery::Other(_))
            | Fault::Xid(_)
            | Fault::SharedMemory
            | Fault::Failed(_)
            | Fault::DriverUnavailable(_) => false,
        }
    }
}

/// The recovery action that the driver requests before the GPU is used again (`nvmlDeviceGpuRecoveryAction_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Recovery {
    /// Reset the GPU.
    #[strum(to_string = "reset the GPU")]
    Reset,
    /// Reboot the node.
    #[strum(to_string = "reboot the node")]
    Reboot,
    /// Stop traffic between GPUs.
    #[strum(to_string = "stop traffic between GPUs")]
    DrainPeers,
    /// Let running work end, then reset it.
    #[strum(to_string = "let its work end, then reset the GPU")]
    DrainAndReset,
    /// An action that this version does not know.
    #[strum(to_string = "recovery action {0}")]
    Other(u64),
}

impl Recovery {
    /// From the driver's number; `None` if no action is needed.
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

/// A GPU's state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// Pods may get the GPU.
    #[default]
    Healthy,
    /// Pods may not get the GPU.
    Unhealthy {
        /// The reason.
        reason: Fault,
        /// Since when it has not been healthy.
        since_ns: u64,
        /// Consecutive good scans since the last fault.
        good_scans: u32,
    },
}

/// One observation of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// A scan found nothing wrong.
    Good,
    /// A scan found this fault.
    Bad(Fault),
    /// An Xid that counts as the GPU's fault.
    CriticalXid(u64),
}

impl Health {
    /// Why pods may not get it.
    pub fn reason(&self) -> Option<&Fault> {
        match self {
            Health::Healthy => None,
            Health::Unhealthy { reason, .. } => Some(reason),
        }
    }

    /// Since when pods may not get it.
    pub fn since_ns(&self) -> Option<u64> {
        match self {
            Health::Healthy => None,
            Health::Unhealthy { since_ns, .. } => Some(*since_ns),
        }
    }

    /// The state after an observation at this time. Recovery needs `needed` consecutive good scans.
    #[must_use]
    pub fn after(self, observation: Observation, now_ns: u64, needed: NonZeroU32) -> Self {
        let since_ns = self.since_ns().unwrap_or(now_ns);
        let unhealthy = |reason, good_scans| Health::Unhealthy { reason, since_ns, good_scans };
        match (self, observation) {
            (_, Observation::CriticalXid(code)) => unhealthy(Fault::Xid(code), 0),
            // The Xid that came first explains more than the fault that a later scan finds.
            (Health::Unhealthy { reason: reason @ Fault::Xid(_), .. }, Observation::Bad(_)) => {
                unhealthy(reason, 0)
            }
            (_, Observation::Bad(found)) => unhealthy(found, 0),
            (Health::Unhealthy { reason, good_scans, .. }, Observation::Good)
                if good_scans + 1 < needed.get() =>
            {
                unhealthy(reason, good_scans + 1)
            }
            (_, Observation::Good) => Health::Healthy,
        }
    }
}

#[cfg(test)]
mod tests;
