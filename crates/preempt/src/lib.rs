//! The preemption engine.
//!
//! Every stream has a queue. While a stream runs, its calls go to the driver on the caller's own thread; while it is
//! preempted they wait in the host queue and are handed over in order later. Only the *order of submission* is controlled: the
//! driver and the GPU do the rest, so that a program cannot tell a preemption from a slow GPU.

#![forbid(unsafe_code)]

mod book;
pub mod command;
pub mod config;
mod door;
pub mod driver;
pub mod engine;
mod estimate;
mod events;
mod flight;
pub mod ids;
pub mod outcome;
pub mod queue;
mod share;
pub mod state;
mod sync;
mod tickets;
pub mod worker;
