//! Values of `sluice.dev/quota`: a share of each GPU, or whole GPUs. Numbers are read as written, without floats.

use std::fmt;

use sluice_units::{Share, WHOLE_PPM};

/// The most GPUs of one pod.
pub const MAX_GPUS: u32 = 64;

/// Annotations state shares in thousandths of a GPU.
pub(crate) const THOUSANDTH_PPM: u32 = WHOLE_PPM / 1000;

/// Values that `sluice.dev/quota` accepts, for messages.
pub(super) const QUOTA_ALLOWED: &str = "a share of one GPU above 0 and at most 1 in thousandths (0.3, 0.125) or \
     percent (30%, 12.5%), or 2 to 64 whole GPUs (2)";
/// Values that `sluice.dev/limit` accepts, for messages.
pub(super) const LIMIT_ALLOWED: &str =
    "a share of one GPU above 0 and at most 1 in thousandths (0.8) or percent (80%)";

/// A share of a GPU or a number of whole ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The guaranteed share of each GPU; zero: only time that the others leave.
    Share(Share),
    /// This many whole GPUs.
    Whole(u32),
}

impl Amount {
    /// An amount in thousandths of one GPU: 1 to 1000, or whole GPUs from 2000 on.
    pub fn from_milli(milli: u64) -> Option<Self> {
        let milli = u32::try_from(milli).ok().filter(|milli| *milli > 0)?;
        let share = milli.checked_mul(THOUSANDTH_PPM).and_then(Share::from_ppm);
        let gpus = (milli / 1000).min(MAX_GPUS);
        share.map(Self::Share).or((gpus * 1000 == milli).then_some(Self::Whole(gpus)))
    }
}

/// The text that `sluice.dev/quota` accepts.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => share.fmt(f),
            Self::Whole(gpus) => gpus.fmt(f),
        }
    }
}

/// A share above 0, in whole thousandths, from `0.3` or `30%`.
pub(super) fn parse_share(text: &str) -> Option<Share> {
    let (ppm, exact) = match text.strip_suffix('%') {
        Some(percent) => Decimal::parse(percent)?.times(WHOLE_PPM / 100),
        None => Decimal::parse(text)?.times(WHOLE_PPM),
    };
    let ppm =
        u32::try_from(ppm).ok().filter(|ppm| exact && *ppm > 0 && ppm.is_multiple_of(THOUSANDTH_PPM))?;
    Share::from_ppm(ppm)
}

/// A share, or whole GPUs where the number is 2 to 64.
pub(super) fn parse_quota(text: &str) -> Option<Amount> {
    if let Some(share) = parse_share(text) {
        return Some(Amount::Share(share));
    }
    let (gpus, exact) = Decimal::parse(text)?.times(1);
    let gpus = u32::try_from(gpus).ok().filter(|_| exact)?;
    (2..=MAX_GPUS).contains(&gpus).then_some(Amount::Whole(gpus))
}

/// A number of GPUs, 1 to 64.
pub(super) fn parse_gpus(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|gpus| is_number && (1..=MAX_GPUS).contains(gpus))
}

/// `digits / 10^scale`, exactly as in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    digits: u128,
    scale: u32,
}

/// The most significant digits of a number: 10^27 × 10^9 still fits a `u128`.
const MAX_DIGITS: usize = 27;

impl Decimal {
    /// Reads `12`, `0.5` or `007.250`; no sign, no exponent, digits on both sides of the point.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = match text.split_once('.') {
            Some((whole, fraction)) => (whole, fraction),
            None => (text, "0"),
        };
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return None;
        }
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        if whole.len() + fraction.len() > MAX_DIGITS {
            return None;
        }
        let digits = format!("0{whole}{fraction}").parse().ok()?;
        Some(Self { digits, scale: u32::try_from(fraction.len()).ok()? })
    }

    /// The number times `factor` (at most 10^9), rounded down, and whether the result is exact.
    pub(super) fn times(self, factor: u32) -> (u128, bool) {
        let unit = 10u128.pow(self.scale);
        let product = self.digits * u128::from(factor);
        (product / unit, product.is_multiple_of(unit))
    }
}
