//! `sluice` as its users run it: under the name of the kubectl plugin, and in a terminal.
#![cfg(feature = "cluster")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod plugin;
mod policy;
mod sim_run;
mod suspend;
mod terminal;
mod top;
