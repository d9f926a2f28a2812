//! Whether a driver's controls do what they say: judged by what two busy programs of ours got done meanwhile, never by the
//! driver's status.
//!
//! Everything here is counts in, [`Effect`] out. Counts are kernels that both programs completed in the same window, so a
//! loaded machine makes windows longer and changes no ratio.

mod judge;
mod verdict;

pub use judge::{FEW, goes_on, slices, stands, switches};
pub use verdict::{About, Allows, Verdict, boot};

use std::fmt;

use sluice_comm::attach::ContextHandles;

use crate::{ControlError, Controls, NvStatus};

/// The cheap check at an attach: the handles name a group of which the driver knows a slice, and counts if it counts at all. It proves no effect, it
/// shows a process that announces something else, and a driver that no longer answers as it did when it was tested.
///
/// # Errors
/// What the driver says instead.
pub fn answers(controls: &Controls, handles: &ContextHandles) -> Result<(), ControlError> {
    let ContextHandles { client, subdevice, channel_group, .. } = *handles;
    if controls.timeslice(client, channel_group)? == 0 {
        return Err(ControlError::Refused(NvStatus::INVALID_STATE));
    }
    match controls.ctxsw_stats(client, subdevice, channel_group) {
        // Not every driver counts, nor is it needed.
        Ok(_) | Err(ControlError::Refused(NvStatus::NOT_SUPPORTED)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What came of a control.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "effect", rename_all = "snake_case"))]
pub enum Effect {
    /// What it says.
    Proven,
    /// Nothing, although the driver says that it was done.
    NoEffect,
    /// It took effect, and undoing it did not.
    NotUndone,
    /// The driver refused it.
    Refused {
        /// What it said.
        why: String,
    },
    /// Too little was seen to tell.
    Inconclusive {
        /// What was seen, or what was missing.
        why: String,
    },
}

impl Effect {
    /// Whether the control can be relied on.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        *self == Self::Proven
    }

    /// Whether another attempt may tell more.
    #[must_use]
    pub fn is_inconclusive(&self) -> bool {
        matches!(self, Self::Inconclusive { .. })
    }

    /// Refused, for this reason.
    pub fn refused(why: impl fmt::Display) -> Self {
        Self::Refused { why: why.to_string() }
    }

    /// Not to be told, for this reason.
    pub fn inconclusive(why: impl fmt::Display) -> Self {
        Self::Inconclusive { why: why.to_string() }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proven => f.write_str("takes effect"),
            Self::NoEffect => f.write_str("the driver says that it was done, and nothing comes of it"),
            Self::NotUndone => f.write_str("takes effect, and cannot be undone"),
            Self::Refused { why } => write!(f, "refused: {why}"),
            Self::Inconclusive { why } => write!(f, "inconclusive: {why}"),
        }
    }
}
