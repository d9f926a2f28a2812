//! One `sluice pod-manager` process per GPU: the agent starts, watches and restarts it, sends it its clients, and asks
//! what they used.
//!
//! A manager keeps no state over a restart. The agent then sends the whole set of clients again, and processes attach
//! again by themselves.

mod abandoned_sockets;
mod abandoned_tables;
pub(crate) mod control_client;
mod escrow;
mod flags;
mod memory_reports;
mod process;
mod reconciler;
mod status;
mod supervisor;

pub use control_client::{ControlError, snapshot};
pub use flags::{Controls, Flags, SelfTest, UnhookedDiscovery, ViolationPolicy};
pub use memory_reports::MemoryReports;
pub use process::ManagerCommand;
pub use reconciler::instance_id;
pub use status::{ManagerState, ManagerStatus, ManagerStatuses};
pub use supervisor::{Settings, supervise};
