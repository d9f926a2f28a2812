//! Evaluation of kernel counts.

use super::Effect;
use crate::abi::CtxswStats;

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
#[must_use]
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
#[must_use]
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
#[must_use]
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
#[must_use]
pub fn switch_count_effect(before: CtxswStats, after: CtxswStats) -> Effect {
    if after.saves.wrapping_sub(before.saves) > 0 { Effect::Proven } else { Effect::NoEffect }
}
