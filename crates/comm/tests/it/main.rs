//! The integration tests of the crate, in one binary. The tests under loom's model are in `loom_pages.rs`, because they
//! need another build of the crate (`--cfg loom`).
//!
//! Under miri: `cargo +nightly miri test -p sluice-comm --test it -- pages:: attach:: golden:: refused::`
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper that panics fails its test")]

mod attach;
mod golden;
mod latencies;
mod maxima;
mod names;
mod pages;
mod properties;
mod refused;
