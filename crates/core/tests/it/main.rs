//! The integration tests of the crate, in one binary.

#![allow(clippy::unwrap_used, reason = "a test")]

mod dependent_work;
mod distributed_by_grants;
mod disturbances;
mod gangs;
mod gangs_by_grants;
mod gangs_model;
mod process_model;
mod scheduling_model;
mod shares_after_disturbance;
mod shares_by_level;
mod simulated_gpu;
mod token_model;
