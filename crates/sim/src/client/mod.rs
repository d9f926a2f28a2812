//! A process's side of the protocol, and the questions that anybody may ask the GPU.
mod ask;
pub use ask::{ledger, timeline, window};
