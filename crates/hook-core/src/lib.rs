//! What the hook does, in safe Rust: gate, predictors, streams, allocations and the client side of the token.
//!
//! Nothing here calls the driver, a socket or a clock; those stand behind the traits of [`platform`]. The crate `hook`
//! implements them in the process it was loaded into, tests implement them as fakes.

#![forbid(unsafe_code)]

pub mod allocations;
pub mod array_size;
pub mod captures;
pub mod config;
pub mod counters;
pub mod device;
pub mod hold_kernel;
pub mod launch_gate;
pub mod memory;
pub mod outcome;
pub mod period_predictor;
pub mod platform;
pub mod retain_count;
pub mod streams;
pub mod thread_state;

#[cfg(test)]
mod fakes;
