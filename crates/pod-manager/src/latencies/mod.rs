//! Latencies of steps and requests, as processes report them on their pages, as far as the reports can be true.

mod reader;
mod report;

pub(crate) use reader::NewLatencies;
pub(crate) use report::{LatencyReport, NewReport};
