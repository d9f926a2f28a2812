//! The engine against a fake GPU, step by step where possible. The crate's front page lists which test proves which
//! number of the contract.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a helper that panics fails its test"
)]

mod calls;
mod capture;
mod contexts;
mod dependencies;
mod destroy;
mod enable;
mod errors;
mod events;
mod fake_gpu;
mod legacy;
mod levels;
mod lifetime;
mod liveness;
mod module_loads;

mod model;
mod order;
mod random_programs;
mod rig;
mod threads;
