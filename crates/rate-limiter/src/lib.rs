//! The limiters of the whole workspace: a token bucket and an exponential backoff, both with the clock as an argument.
//!
//! * [`RateLimiter`] limits how often something happens: controls, announcements, wake-ups, log lines, API requests.
//! * [`Backoff`] spaces the attempts of something that failed.
//!
//! Times are `u64` nanoseconds of any monotonic clock.
#![forbid(unsafe_code)]

mod backoff;
mod rate_limiter;

pub use backoff::Backoff;
pub use rate_limiter::{Rate, RateLimiter};
