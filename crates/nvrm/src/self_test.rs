//! The self-test: whether the controls of a driver have their effect. The evidence is the work that two busy programs of our own
//! complete during the test, never the driver's status.
//!
//! The functions take counts and return an [`Effect`]. Both counts are kernels completed in the same time window, so a loaded
//! machine makes the window longer and changes no ratio.

mod evaluation;
mod self_test_result;

pub use evaluation::{MIN_KERNELS, disable_effect, enable_effect, switch_count_effect, time_slice_effect};
pub use self_test_result::{SelfTestResult, SelfTestSubject, UsableControls, boot_id};

use std::fmt;

use sluice_comm::attach::ContextHandles;

use crate::{ControlError, Controls, NvStatus};

/// The cheap check when a process attaches: the driver returns a time slice for the group, and switch counts if it has any.
///
/// It does not prove an effect. It detects a process that announces handles of something else, and a driver that no longer answers
/// as in the self-test.
///
/// # Errors
/// The driver's error instead of an answer.
pub fn check_handles(controls: &Controls, handles: &ContextHandles) -> Result<(), ControlError> {
    let ContextHandles { client, subdevice, channel_group, .. } = *handles;
    if controls.timeslice(client, channel_group)? == 0 {
        return Err(ControlError::Refused(NvStatus::INVALID_STATE));
    }
    match controls.ctxsw_stats(client, subdevice, channel_group) {
        // Some drivers have no counts; nothing depends on them.
        Ok(_) | Err(ControlError::Refused(NvStatus::NOT_SUPPORTED)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The effect of a control.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "effect", rename_all = "snake_case"))]
pub enum Effect {
    /// It has its effect.
    Proven,
    /// It has no effect, although the driver reported success.
    NoEffect,
    /// It has its effect, but undoing it has none.
    NotUndone,
    /// The driver refused it.
    Refused {
        /// The driver's error.
        why: String,
    },
    /// The measurement does not decide it.
    Inconclusive {
        /// What was measured, or what was missing.
        why: String,
    },
}

impl Effect {
    /// Whether the control can be relied on.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        *self == Self::Proven
    }

    /// Whether another attempt may decide it.
    #[must_use]
    pub fn is_inconclusive(&self) -> bool {
        matches!(self, Self::Inconclusive { .. })
    }

    /// [`Effect::Refused`] for this reason.
    pub fn refused(why: impl fmt::Display) -> Self {
        Self::Refused { why: why.to_string() }
    }

    /// [`Effect::Inconclusive`] for this reason.
    pub fn inconclusive(why: impl fmt::Display) -> Self {
        Self::Inconclusive { why: why.to_string() }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proven => f.write_str("takes effect"),
            Self::NoEffect => f.write_str("the driver reports success, but nothing comes of it"),
            Self::NotUndone => f.write_str("takes effect, and cannot be undone"),
            Self::Refused { why } => write!(f, "refused: {why}"),
            Self::Inconclusive { why } => write!(f, "inconclusive: {why}"),
        }
    }
}
