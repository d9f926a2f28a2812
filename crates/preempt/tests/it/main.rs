//! The engine against a fake GPU, step by step where possible. The crate's documentation says which test shows which number
//! of the contract.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a helper that panics fails its test"
)]

mod calls;
mod capture;
mod contexts;
mod depend;
mod destroy;
mod enable;
mod errors;
mod events;
mod gpu;
mod legacy;
mod levels;
mod lifetime;
mod liveness;
mod loads;

mod model;
mod order;
mod program;
mod rig;
mod threads;
