//! The pod-manager: one process per GPU that grants GPU time and memory to its clients.
//!
//! The clients are the entries of a resource file, or the pods that the node agent names. The manager schedules the channel groups of
//! processes that send a control descriptor; all other processes are scheduled by token.
//!
//! [`run`] serves until a signal; [`start`] serves beside the caller. One thread, the event loop, owns all state: grants, memory,
//! connections, pages, channel groups. It takes no lock and waits only in epoll. Everything that may block (the resource file, HTTP, the
//! control API, the driver) is on other threads, which reach the event loop by messages.
//!
//! ```no_run
//! use sluice_pod_manager::{Config, start};
//!
//! let manager = start(Config::new("/run/sluice/gpu.sock", "/etc/sluice/resources"))?;
//! manager.stop()?;
//! # Ok::<(), sluice_pod_manager::Error>(())
//! ```
//!
//! Where to look:
//!
//! | module | content |
//! |---|---|
//! | `event_loop` | the loop: wait, hand events to parts, decide, carry out effects |
//! | `connections` | listeners, limits, frames, attaches that wait for their pods |
//! | `clients` | clients: what each was promised and has used |
//! | `policy_file`, `watched_file` | settings of the policy file; how it and the resource file are watched |
//! | `processes` | the table of [`sluice_core::processes`], and the manager's end of each process: pages, wake-ups |
//! | `grants` | what the token ledger decides, written to pages |
//! | [`channel_groups`] | control of channel groups: the control executor, the escrow of descriptors |
//! | `gangs` | slots of clients with processes on several GPUs, agreed with the managers of these |
//! | `latencies` | how long steps and requests of latency-critical processes take, as their pages report it |
//! | [`unhooked`] | inspection of processes from outside |
//! | `violations` | what processes were found to do against their limits, for the node agent |
//! | [`measured_memory`] | readings of the driver's figures of memory, compared with the charges |
//! | [`trace`], `trace_server` | what is recorded for readers of traces, the trace as a file; the trace socket |
//! | `agent_api`, `metrics`, `http` | the control API of the node agent, metrics and health |
#![forbid(unsafe_code)]

mod agent_api;
mod announcement;
pub mod channel_groups;
mod client_set;
mod clients;
pub mod clock;
mod closer;
mod config;
mod connections;
mod deadlines;
mod definition;
mod error;
mod event_loop;
mod gangs;
mod grants;
mod http;
mod io;
mod latencies;
mod listen;
mod log_limiter;
pub mod measured_memory;
mod message;
mod metrics;
mod party;
pub mod peer;
mod policy_file;
mod poller;
mod processes;
mod reason;
mod report;
mod residency;
mod server;
mod side_thread;
mod stalled;
mod stopped_threads;
mod suspensions;
pub mod trace;
mod trace_server;
pub mod unhooked;
mod violations;
mod watched_file;

pub use config::{
    AgentConfig, ClientSource, Config, ConfigMistake, ConfigMistakes, Controls, OnManagerLoss, Overcommit,
};
pub use error::{Error, Result};
pub use policy_file::{describe as describe_policy, schema as policy_schema};
pub use server::{Handle, Parts, run, start, start_with};
pub use sluice_core::processes::ViolationPolicy;
