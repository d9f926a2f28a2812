//! The simulated GPU's engine, stepped event by event: invariants, and comparison with measurements on an H200.

mod busy_engine;
mod channel_groups;
mod collectives;
mod copy_engines;
mod invariants;
mod measured;
mod memory_words;
