//! What the hook does, in safe Rust: gate, predictors, streams, allocations and the client side of the token.
//!
//! Nothing here calls the driver, a socket or a clock; those stand behind the traits of [`platform`]. The crate `hook`
//! implements them in the process it was loaded into, tests implement them as fakes.

#![forbid(unsafe_code)]

pub mod array;
pub mod captures;
pub mod config;
pub mod counters;
pub mod device;
pub mod gate;
pub mod hint;
pub mod ledger;
pub mod memory;
pub mod outcome;
pub mod platform;
pub mod predictor;
pub mod retains;
pub mod streams;
pub mod thread;

#[cfg(test)]
mod fakes;
