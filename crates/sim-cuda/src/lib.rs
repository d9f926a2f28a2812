//! `libcuda.so.1` and `libnvidia-ml.so.1` of a simulated GPU: two names of this one library.
//!
//! * [`exports`]: the C interface with every function of the driver table; [`border`] converts the arguments.
//! * [`api`]: the functions, one file per chapter of the driver API; a function without a chapter returns "not
//!   supported".
//! * [`state`]: the objects on which they work: devices, contexts, streams, memory.
//! * [`nvml`]: the management library.
//!
//! No crate may link this one: it exports the driver's symbols. Unsafe code is in `border`, `exports`,
//! `nvml` and `state::{mapping, host, ioctl}` only.
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "functions have the driver's names and arguments"
)]

#[macro_use]
extern crate sluice_driver_api;

mod api;
mod border;
mod exports;
mod nvml;
mod state;
#[cfg(test)]
mod tests;
