//! `libcuda.so.1` and `libnvidia-ml.so.1` of a simulated GPU: two names of this one library.
//!
//! * [`exports`] is the C face: every function of the driver table, its arguments carried over the border ([`border`]).
//! * [`api`] is what the functions do, a file per chapter of the driver API; what is in none of them is not supported.
//! * [`state`] is what they do it to: devices, contexts, streams, memory.
//! * [`nvml`] is the management library.
//!
//! Nothing may link this crate: it exports the driver's symbols. Unsafe code is in `border`, `calls`, `exports`, `nvml`
//! and `state::{mapping, host, ioctl}` only.
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "functions have the driver's names and arguments"
)]

#[macro_use]
extern crate sluice_driver_api;

mod api;
mod border;
mod calls;
mod exports;
mod nvml;
mod state;
#[cfg(test)]
mod tests;
