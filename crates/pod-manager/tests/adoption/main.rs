//! Scheduling of unhooked processes, over real sockets, with a driver, a clock and a discovery that the test controls.

#![allow(clippy::unwrap_used, reason = "a test")]

mod announced;
mod harness;
mod locked;
mod scans;
mod scheduled;
#[path = "../support/mod.rs"]
mod support;
