//! The enforcement level that this machine allows, from the proven effects.

use std::fmt;

use serde::Serialize;
use sluice_nvrm::self_test::Effect;

/// Enforcement of shares, from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EnforcementLevel {
    /// No enforcement.
    None,
    /// Programs request tokens; that they wait for them was not proven.
    Token,
    /// Launches wait in the program's own process.
    Host,
    /// Submitted work waits on the GPU at stream gates.
    Device,
    /// Running work is stopped and sliced by channel-group controls.
    Full,
}

impl fmt::Display for EnforcementLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Token => "token",
            Self::Host => "host",
            Self::Device => "device",
            Self::Full => "full",
        })
    }
}

/// Proven effects, or the reasons why they were not proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proofs {
    /// A program under the hook has attached to the manager.
    pub(super) attached: Result<(), String>,
    /// Without a grant it launches nothing.
    pub(super) waits: Effect,
    /// A stream waits for a word in memory.
    pub(super) gate: Result<(), String>,
    /// The hook announces every channel group.
    pub(super) groups: Result<(), String>,
    /// Under MPS tenants share a context, so they have no channel groups of their own.
    pub(super) is_shared: bool,
    pub(super) stops: Effect,
    pub(super) slices: Effect,
}

/// The level and its reason, with what is missing for the next level.
pub(super) fn decide(proofs: &Proofs) -> (EnforcementLevel, String) {
    if let Err(why) = &proofs.attached {
        return (EnforcementLevel::None, format!("The hook does not reach a manager: {why}"));
    }
    if !proofs.waits.is_proven() {
        return (EnforcementLevel::Token, format!("Not host: a program without a grant: {}", proofs.waits));
    }
    match (full(proofs), &proofs.gate) {
        (Ok(reason), _) => (EnforcementLevel::Full, reason),
        (Err(why), Ok(())) => (EnforcementLevel::Device, format!("Not full: {why}")),
        (Err(why), Err(gate)) => (EnforcementLevel::Host, format!("Not full: {why}. Not device: {gate}")),
    }
}

fn full(proofs: &Proofs) -> Result<String, String> {
    if proofs.is_shared {
        return Err("under MPS channel groups belong to several tenants".to_owned());
    }
    proofs.groups.clone()?;
    if !proofs.stops.is_proven() {
        return Err(format!("stopping a channel group (DISABLE_CHANNELS): {}", proofs.stops));
    }
    if proofs.slices.is_proven() {
        Ok("Channel groups are stopped, started and sliced from outside".to_owned())
    } else {
        Ok(format!(
            "Channel groups are stopped and started from outside; time slices (SET_TIMESLICE): {}",
            proofs.slices
        ))
    }
}

#[cfg(test)]
mod tests;
