//! Faults of a GPU: the lasting effect of an Xid, until the GPU is repaired, and faults of its driver's controls.

use serde::{Deserialize, Serialize};

/// The lasting state of a GPU after a serious Xid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Number of the Xid.
    pub xid: u64,
    /// Its effect.
    pub effect: Effect,
}

/// The effect of a fault on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// The GPU does not answer any more. Everything that ran on it is lost.
    Lost,
    /// The GPU answers queries. Everything that ran on it is lost, and nothing runs before a reset.
    NeedsReset,
    /// The GPU continues to work. The driver asks for a reset when its work is done.
    Degraded,
}

/// A fault of the driver's controls of channel groups. It lasts until it is removed; no work is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlFault {
    /// The driver refuses each control with `INVALID_STATE`.
    Refused,
    /// The driver refuses each change of a time slice with `INVALID_STATE`.
    SlicesRefused,
    /// The driver waits this long, in nanoseconds, before it makes each control.
    Slow {
        /// The wait.
        ns: u64,
    },
}

impl Fault {
    /// The fault that an Xid reports; `None` for an Xid that reports an error of a program.
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
