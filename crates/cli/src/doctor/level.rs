//! Which level can be had here, from what was proven.

use std::fmt;

use serde::Serialize;
use sluice_nvrm::selftest::Effect;

/// What holds tenants to their shares, from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    /// Nothing does.
    None,
    /// Programs that ask take turns; that they wait for theirs was not proven.
    Token,
    /// Launches wait in the program's own process.
    Host,
    /// Work that is submitted already waits on the GPU, for a word of the host's.
    Device,
    /// Running work is stopped and sliced from outside.
    Full,
}

impl fmt::Display for Level {
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

/// What was proven, and why not where it was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proofs {
    /// A program under the hook has come to the manager.
    pub(super) attached: Result<(), String>,
    /// Without a grant it stands.
    pub(super) holds: Effect,
    /// A stream waits for a word.
    pub(super) gate: Result<(), String>,
    /// The hook announces every channel group.
    pub(super) groups: Result<(), String>,
    /// Tenants share one context with others, whose channel groups are not their own.
    pub(super) is_shared: bool,
    pub(super) stops: Effect,
    pub(super) slices: Effect,
}

/// The level, what it rests on and what the next one lacks.
pub(super) fn decide(proofs: &Proofs) -> (Level, String) {
    if let Err(why) = &proofs.attached {
        return (Level::None, format!("The hook does not reach a manager: {why}"));
    }
    if !proofs.holds.is_proven() {
        return (Level::Token, format!("Not host: a program without a grant: {}", proofs.holds));
    }
    match (full(proofs), &proofs.gate) {
        (Ok(said), _) => (Level::Full, said),
        (Err(why), Ok(())) => (Level::Device, format!("Not full: {why}")),
        (Err(why), Err(gate)) => (Level::Host, format!("Not full: {why}. Not device: {gate}")),
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
mod tests {
    use super::*;

    fn all() -> Proofs {
        Proofs {
            attached: Ok(()),
            holds: Effect::Proven,
            gate: Ok(()),
            groups: Ok(()),
            is_shared: false,
            stops: Effect::Proven,
            slices: Effect::Proven,
        }
    }

    #[track_caller]
    fn falls_to(level: Level, because: &str, proofs: &Proofs) {
        let (found, why) = decide(proofs);
        assert_eq!(found, level, "{why}");
        assert!(why.contains(because), "{why}");
    }

    #[test]
    fn what_was_not_proven_is_not_built_on() {
        falls_to(Level::Full, "sliced", &all());
        falls_to(Level::Full, "nothing comes of it", &Proofs { slices: Effect::NoEffect, ..all() });
        falls_to(Level::Device, "nothing comes of it", &Proofs { stops: Effect::NoEffect, ..all() });
        falls_to(Level::Device, "cannot be undone", &Proofs { stops: Effect::NotUndone, ..all() });
        falls_to(Level::Device, "MPS", &Proofs { is_shared: true, ..all() });
        falls_to(Level::Device, "not seen", &Proofs { groups: Err("not seen".into()), ..all() });
        let without = Proofs { stops: Effect::refused("0x56"), gate: Err("801".into()), ..all() };
        falls_to(Level::Host, "0x56", &without);
        falls_to(Level::Host, "801", &without);
        falls_to(Level::Token, "nothing comes", &Proofs { holds: Effect::NoEffect, ..all() });
        falls_to(Level::None, "no library", &Proofs { attached: Err("no library".into()), ..all() });
    }

    #[test]
    fn memory_operations_alone_do_not_lower_the_level() {
        falls_to(Level::Full, "sliced", &Proofs { gate: Err("801".into()), ..all() });
    }
}
