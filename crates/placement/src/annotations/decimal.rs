//! Decimal numbers as written, without floats.

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
