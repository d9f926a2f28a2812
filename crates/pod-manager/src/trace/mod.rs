//! Traces: what the manager decided and what followed, for an operator's `sluice trace`.
//!
//! | module | content |
//! |---|---|
//! | `event` | the events, which a reader receives as lines of JSON |
//! | `tracer`, `recording`, `ring` | what the event loop records while there is a reader |
//! | `reader` | the reader's end of the trace socket |
//! | `chrome` | events as a trace for Perfetto and chrome://tracing |
//!
//! The event loop never waits for a reader: a full ring loses its oldest events, and the reader learns how many.

mod chrome;
mod event;
mod reader;
mod recording;
mod ring;
mod tracer;

pub use chrome::write_chrome;
pub use event::{Decision, Label, TraceEvent};
pub use reader::read_trace;
pub(crate) use recording::TraceBatch;
pub(crate) use tracer::Tracer;
