//! The integration tests of the crate, in one binary.
#![allow(clippy::unwrap_used, reason = "a helper that panics fails its test")]

mod futex;
mod kind;
mod memfd;
mod page;
mod socket;
mod tsc;
