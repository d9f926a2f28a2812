//! Scheduling policies side by side on one or several simulated GPUs: a discrete-event simulation, without I/O, clock or global randomness.
//!
//! * [`scenario`]: clients, their work and the GPU, read from a file.
//! * [`simulate`] runs one policy on a scenario. The arrivals are the same for each policy and each run with the same seed.
//! * [`report`]: what each client got.
//!
//! The policy `sluice` is the code of the pod-manager: `sluice_core`'s token ledger and channel-group scheduler.
#![forbid(unsafe_code)]

mod client;
mod node;
mod policies;
mod policy_name;
mod random;
pub mod report;
pub mod scenario;
mod simulation;

pub use node::simulate;
pub use policy_name::PolicyName;
pub use report::{Finished, Report};
pub use scenario::Scenario;
