//! Faults of a GPU: the lasting effect of an Xid, until the GPU is repaired.

use serde::{Deserialize, Serialize};

/// The state that a serious Xid leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The Xid.
    pub xid: u64,
    /// What it did.
    pub effect: Effect,
}

/// What is left of the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// It does not answer any more; whatever ran on it is gone.
    Lost,
    /// The GPU answers queries. Everything that ran on it is lost, and nothing runs before a reset.
    NeedsReset,
    /// It works on; the driver asks for a reset when its work is done.
    Degraded,
}

impl Fault {
    /// The fault that an Xid leaves; `None` for those that a program causes by itself.
    pub fn of_xid(xid: u64) -> Option<Self> {
        let effect = match xid {
            79 => Effect::Lost,
            48 | 62 | 64 | 95 | 119 | 120 | 140 | 143 => Effect::NeedsReset,
            63 | 74 | 92 | 94 => Effect::Degraded,
            _ => return None,
        };
        Some(Self { xid, effect })
    }

    /// Whether programs lose the GPU.
    pub fn stops_work(&self) -> bool {
        self.effect != Effect::Degraded
    }

    /// The recovery action that NVML reports (`nvmlDeviceGpuRecoveryAction_t`); a lost GPU reports none.
    pub fn recovery_action(&self) -> u32 {
        match self.effect {
            Effect::Lost | Effect::NeedsReset => 1,
            Effect::Degraded => 4,
        }
    }
}

#[cfg(test)]
mod tests;
