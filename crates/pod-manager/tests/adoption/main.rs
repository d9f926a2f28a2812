//! Programs of pods that run without the hook, over real sockets, with a driver, a clock and a scout that the test moves.

#![allow(clippy::unwrap_used, reason = "a test")]

mod announced;
mod locked;
mod looks;
mod node;
mod steered;
#[path = "../support/mod.rs"]
mod support;
