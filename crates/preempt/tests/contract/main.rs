//! The engine against a fake GPU, step by step where possible.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a helper that panics fails its test"
)]

mod gpu;
mod levels;
mod order;
mod program;
mod rig;
