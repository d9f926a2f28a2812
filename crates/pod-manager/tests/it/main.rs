//! The pod-manager over real sockets, pages and futexes; clock, peers and driver are the tests'.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../support/mod.rs"]
mod support;

mod announcements;
mod bad_input;
mod bounded_rounds;
mod channel_groups;
mod control;
mod crowds;
mod deadlines;
mod energy;
mod escrow;
mod gemini;
mod hand_offs;
mod heartbeat;
mod hold_and_wait;
mod latencies;
mod measured_memory;
mod memory;
mod own_processes;
mod pending_attaches;
mod policy_file;
mod probation;
mod processes;
mod reload;
mod stalled;
mod suspension;
mod switch_times;
mod tokens;
mod trace;
mod unhooked;
mod wakeups;
