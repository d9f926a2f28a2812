//! What the daemons have in common: [`log`], [`listener`], [`pages`], and the metrics of a process ([`ProcessCollector`], [`ProcessFigures`]).
#![forbid(unsafe_code)]

pub mod listener;
pub mod log;
pub mod pages;
mod process_metrics;

pub use process_metrics::{ProcessCollector, ProcessFigures};
