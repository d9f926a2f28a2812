//! The agent's HTTP pages: `/metrics` for Prometheus, `/state` for users and tests, `/livez` and `/readyz` for
//! kubelet.
//!
//! * [`scrape`]: asks all managers concurrently, each with a deadline. A manager that hangs costs only its own series.
//! * [`families`]: converts the facts into Prometheus's series. Pure, and built anew for each scrape: a pod that ended
//!   leaves no series.
//!   The series are in `client_families`, `gpu_families` and `channel_groups`.
//! * [`state`]: the same facts as JSON, with the wanted clients beside those in force.
//! * [`readiness`]: what the node still lacks before it can take pods.
//! * [`http`]: the server.

mod channel_groups;
mod client_families;
pub mod families;
mod gpu_families;
pub mod http;
pub mod readiness;
pub mod scrape;
pub mod state;

use std::sync::{Arc, OnceLock};

use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;

pub use readiness::{Component, Readiness};
pub use scrape::{Facts, Sources};

/// The GPUs, once the driver has answered for the first time.
pub type InventorySlot = Arc<OnceLock<watch::Receiver<NodeInventory>>>;
