//! The self-test: whether the controls of a driver have their effect. The evidence is the work that two busy programs of our own
//! complete during the test, never the driver's status.
//!
//! The functions take counts and return an [`Effect`]. Both counts are kernels completed in the same time window, so a loaded
//! machine makes the window longer and changes no ratio.

mod self_test_result;

pub use self_test_result::{SelfTestResult, SelfTestSubject, UsableControls, boot_id};

use std::fmt;

use sluice_comm::attach::ContextHandles;

use crate::abi::CtxswStats;
use crate::{ControlError, Controls, NvStatus};

/// The cheap check when a process attaches: the driver returns a time slice for the group, and switch counts if it has any.
///
/// It does not prove an effect. It detects a process that announces handles of something else, and a driver that no longer answers
/// as in the self-test.
/// Errors: the driver's error instead of an answer.
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
    pub fn is_proven(&self) -> bool {
        *self == Self::Proven
    }

    /// Whether another attempt may decide it.
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

/// Fewer completed kernels than this in a window decide nothing.
pub const MIN_KERNELS: u64 = 100;

/// In thousandths: the largest share with the short slice that counts as "near one fifth", and the smallest share of the same
/// program with the long slice.
const SHORT_AT_MOST: u64 = 320;
const LONG_AT_LEAST: u64 = 680;
/// Shares that differ by less than this, in thousandths, were not changed by the slices.
const UNMOVED: u64 = 120;

/// The effect of time slices of 1 : 4 on two programs that are always busy. The arguments are the kernels that (first, second)
/// completed while the first had the short slice, and while it had the long one.
pub fn time_slice_effect(short_first: [u64; 2], long_first: [u64; 2]) -> Effect {
    let (Some(short), Some(long)) = (share(short_first), share(long_first)) else {
        return Effect::inconclusive(format!(
            "{short_first:?} and {long_first:?} kernels, at least {MIN_KERNELS} each are needed"
        ));
    };
    if short <= SHORT_AT_MOST && long >= LONG_AT_LEAST {
        Effect::Proven
    } else if short.abs_diff(long) < UNMOVED {
        Effect::NoEffect
    } else {
        Effect::inconclusive(format!(
            "slices of 1 : 4 and 4 : 1 gave the same program {} % and {} %",
            short / 10,
            long / 10
        ))
    }
}

/// The share of the first in thousandths; `None` if too few kernels were counted.
fn share([first, second]: [u64; 2]) -> Option<u64> {
    let sum = first.checked_add(second).filter(|sum| *sum >= MIN_KERNELS)?;
    first.checked_mul(1000).map(|thousandths| thousandths / sum)
}

/// The effect of disabling a program's channels: kernels that it completed while the program beside it completed `witness`. Kernels
/// that were in flight when the channels were disabled are not counted.
pub fn disable_effect(disabled: u64, witness: u64) -> Effect {
    if witness < MIN_KERNELS {
        Effect::inconclusive(format!(
            "the program beside it completed {witness} kernels, {MIN_KERNELS} are needed"
        ))
    } else if disabled.saturating_mul(50) <= witness {
        Effect::Proven
    } else if disabled.saturating_mul(4) >= witness {
        Effect::NoEffect
    } else {
        Effect::inconclusive(format!("it completed {disabled} kernels, the program beside it {witness}"))
    }
}

/// The effect of disabling and enabling together: the effect of disabling, and the kernels completed after enabling. `enough` is more
/// than the program had in flight, because kernels that ended before are seen only now.
pub fn enable_effect(disabling: Effect, completed_after: u64, enough: u64) -> Effect {
    match disabling {
        Effect::Proven if completed_after == 0 => Effect::NotUndone,
        Effect::Proven if completed_after < enough => Effect::inconclusive(format!(
            "once it was enabled it completed {completed_after} kernels, {enough} are needed"
        )),
        disabling => disabling,
    }
}

/// Whether the GPU counts context switches of a group while two programs share the GPU.
pub fn switch_count_effect(before: CtxswStats, after: CtxswStats) -> Effect {
    if after.saves.wrapping_sub(before.saves) > 0 { Effect::Proven } else { Effect::NoEffect }
}
