//! Amounts: a share in thousandths of a GPU, or whole GPUs.

use super::WHOLE_MILLI;
use super::decimal::Decimal;

/// The most whole GPUs of one pod.
pub const MAX_WHOLE_GPUS: u32 = 64;

/// Values that `sluice.dev/quota` accepts, for messages.
pub(super) const QUOTA_ALLOWED: &str = "a share of one GPU above 0 and at most 1 in thousandths (0.3, 0.125) or \
     percent (30%, 12.5%), or 2 to 64 whole GPUs (2)";
/// Values that `sluice.dev/limit` accepts, for messages.
pub(super) const LIMIT_ALLOWED: &str =
    "a share of one GPU above 0 and at most 1 in thousandths (0.8) or percent (80%)";

/// A share of one GPU or a number of whole ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Part of one GPU.
    Share {
        /// Guaranteed share in thousandths; 0: only time that the others leave.
        quota_milli: u32,
        /// Largest share in thousandths; above 0 and at least the quota.
        limit_milli: u32,
    },
    /// Whole GPUs.
    Whole {
        /// Number of GPUs, 2 to 64.
        gpus: u32,
    },
}

/// Value of `sluice.dev/quota`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quota {
    Milli(u32),
    Gpus(u32),
}

/// Thousandths above 0 and at most 1000 from `0.3` or `30%`.
pub(super) fn parse_share(text: &str) -> Option<u32> {
    let (milli, exact) = match text.strip_suffix('%') {
        Some(percent) => Decimal::parse(percent)?.times(WHOLE_MILLI / 100),
        None => Decimal::parse(text)?.times(WHOLE_MILLI),
    };
    let milli = u32::try_from(milli).ok().filter(|_| exact)?;
    (1..=WHOLE_MILLI).contains(&milli).then_some(milli)
}

/// A share, or whole GPUs where the number is 2 to 64.
pub(super) fn parse_quota(text: &str) -> Option<Quota> {
    if let Some(milli) = parse_share(text) {
        return Some(Quota::Milli(milli));
    }
    let (gpus, exact) = Decimal::parse(text)?.times(1);
    let gpus = u32::try_from(gpus).ok().filter(|_| exact)?;
    (2..=MAX_WHOLE_GPUS).contains(&gpus).then_some(Quota::Gpus(gpus))
}

/// Thousandths as `0.3`, without trailing zeros.
pub(super) fn plain(milli: u32) -> String {
    show(milli).trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Thousandths as `0.300`, for messages.
pub(super) fn show(milli: u32) -> String {
    format!("{}.{:03}", milli / WHOLE_MILLI, milli % WHOLE_MILLI)
}
