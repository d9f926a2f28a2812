//! What the daemons have in common: [`log`], [`listener`], and the metrics of a process ([`ProcessCollector`], [`ProcessFigures`]).
#![forbid(unsafe_code)]

pub mod listener;
pub mod log;
mod process_metrics;

pub use process_metrics::{ProcessCollector, ProcessFigures};
