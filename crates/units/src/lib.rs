//! Shares of one GPU as integers: parts per million, so that sums and comparisons are exact. The scheduling classes. Durations and
//! Kubernetes quantities as text.
#![forbid(unsafe_code)]

mod class;
mod duration;
mod quantity;

pub use class::Class;
pub use duration::parse_duration;
pub use quantity::{parse_quantity, parse_thousandths};

use std::fmt;

/// Parts per million in a whole GPU.
pub const WHOLE_PPM: u32 = 1_000_000;

/// A share of one GPU, 0 to 1 inclusive, held in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

/// The reason why a number is not a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// NaN or infinite.
    #[error("not a number")]
    NotANumber,
    /// Below zero.
    #[error("negative")]
    Negative,
    /// Above one.
    #[error("more than a whole GPU")]
    AboveOne,
    /// Above zero, but less than a millionth.
    #[error("less than one millionth of a GPU")]
    TooSmall,
}

impl Share {
    /// No share.
    pub const ZERO: Self = Self(0);
    /// The whole GPU.
    pub const ONE: Self = Self(WHOLE_PPM);

    /// From parts per million; above one million is `None`.
    #[must_use]
    pub const fn from_ppm(ppm: u32) -> Option<Self> {
        if ppm <= WHOLE_PPM { Some(Self(ppm)) } else { None }
    }

    /// From a fraction between 0 and 1, rounded to the nearest millionth.
    ///
    /// # Errors
    /// When the fraction is not a number, is outside 0..=1, or would round to zero.
    pub fn from_fraction(fraction: f64) -> Result<Self, ShareError> {
        if !fraction.is_finite() {
            return Err(ShareError::NotANumber);
        }
        if fraction < 0.0 {
            return Err(ShareError::Negative);
        }
        if fraction > 1.0 {
            return Err(ShareError::AboveOne);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and one million by the checks above"
        )]
        let ppm = (fraction * f64::from(WHOLE_PPM)).round() as u32;
        if ppm == 0 && fraction > 0.0 { Err(ShareError::TooSmall) } else { Ok(Self(ppm)) }
    }

    /// Parts per million, 0..=1,000,000.
    #[must_use]
    pub const fn ppm(self) -> u32 {
        self.0
    }

    /// As a fraction for display and metrics.
    #[must_use]
    pub fn as_fraction(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE_PPM)
    }

    /// This share of a span of `ns` nanoseconds, rounded down; never more than `ns`.
    #[must_use]
    pub fn of(self, ns: u64) -> u64 {
        let part = u128::from(ns) * u128::from(self.0) / u128::from(WHOLE_PPM);
        u64::try_from(part).unwrap_or(ns)
    }

    /// `part` divided by `whole`, both in the same unit. At most one; zero if `whole` is zero.
    #[must_use]
    pub fn ratio(part: u64, whole: u64) -> Self {
        if whole == 0 {
            return Self::ZERO;
        }
        let ppm = u128::from(part) * u128::from(WHOLE_PPM) / u128::from(whole);
        Self(u32::try_from(ppm).unwrap_or(WHOLE_PPM).min(WHOLE_PPM))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_fraction())
    }
}

#[cfg(test)]
mod tests;
