//! The pod-manager: one process per GPU that hands out tokens and memory to the clients that one resource file, or the
//! node agent, names; it steers the channel groups of those that let it.
//!
//! [`run`] serves until a signal; [`start`] serves beside the caller. One thread, the data plane, owns tokens, ledgers,
//! connections and pages; it takes no lock and waits for nothing but its epoll. Everything that may block (reading the
//! resource file, HTTP, the control API, the driver) is on other threads and reaches it by messages.
#![forbid(unsafe_code)]

pub mod adopt;
mod agent;
pub mod channels;
mod client_table;
pub mod clock;
mod closer;
mod config;
mod connection;
mod control;
mod data_plane;
mod definition;
mod error;
mod http;
pub mod identity;
mod listen;
mod metrics;
pub mod peer;
mod process;
mod reason;
mod rings;
mod server;
mod tally;
mod throttle;
mod watch;

pub use config::{
    Adoption, AgentConfig, ClientSource, Config, ConfigMistakes, Controls, GatesOf, OnManagerLoss,
};
pub use error::{Error, Result};
pub use reason::Reason;
pub use server::{Handle, Parts, run, start, start_with};
