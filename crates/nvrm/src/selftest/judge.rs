//! What counts say.

use super::Effect;
use crate::abi::CtxswStats;

/// Fewer completed kernels than this in a window prove nothing.
pub const FEW: u64 = 100;

/// The largest share with the short slice of two that is still "near one fifth", in thousandths; and the smallest of what the
/// same program gets with the long slice.
const SHORT_AT_MOST: u64 = 320;
const LONG_AT_LEAST: u64 = 680;
/// Shares that slices have not moved differ by less than this, in thousandths.
const UNMOVED: u64 = 120;

/// What slices of 1 : 4 did: kernels that (first, second) completed while the first had the short one, and then the other way
/// round. Both were always busy.
#[must_use]
pub fn slices(short_first: [u64; 2], long_first: [u64; 2]) -> Effect {
    let (Some(short), Some(long)) = (share(short_first), share(long_first)) else {
        return Effect::inconclusive(format!(
            "{short_first:?} and {long_first:?} kernels, at least {FEW} each are needed"
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

/// Thousandths of the first; nothing if too few were counted.
fn share([first, second]: [u64; 2]) -> Option<u64> {
    let sum = first.checked_add(second).filter(|sum| *sum >= FEW)?;
    first.checked_mul(1000).map(|thousandths| thousandths / sum)
}

/// Whether who is kept from running stands: kernels that it completed while `witness` completed so many beside it. What was
/// under way when it was stopped is not counted.
#[must_use]
pub fn stands(stopped: u64, witness: u64) -> Effect {
    if witness < FEW {
        Effect::inconclusive(format!("the program beside it completed {witness} kernels, {FEW} are needed"))
    } else if stopped.saturating_mul(50) <= witness {
        Effect::Proven
    } else if stopped.saturating_mul(4) >= witness {
        Effect::NoEffect
    } else {
        Effect::inconclusive(format!("it completed {stopped} kernels, the program beside it {witness}"))
    }
}

/// The whole of a stop: how it stood, and how many kernels it completed once it was let go. `enough` are more than it had in
/// flight: those may have ended before, and only be seen now.
#[must_use]
pub fn goes_on(stood: Effect, completed_after: u64, enough: u64) -> Effect {
    match stood {
        Effect::Proven if completed_after == 0 => Effect::NotUndone,
        Effect::Proven if completed_after < enough => Effect::inconclusive(format!(
            "once it was let go it completed {completed_after} kernels, {enough} show that it goes on"
        )),
        stood => stood,
    }
}

/// Whether the GPU counts how often it switched a group out, while two programs took turns.
#[must_use]
pub fn switches(before: CtxswStats, after: CtxswStats) -> Effect {
    if after.saves.wrapping_sub(before.saves) > 0 { Effect::Proven } else { Effect::NoEffect }
}
