//! What the daemons have in common: [`log`], and the metrics of a process ([`ProcessCollector`], [`ProcessFigures`]).
#![forbid(unsafe_code)]

pub mod log;
mod process_metrics;

pub use process_metrics::{ProcessCollector, ProcessFigures};
