//! What the agent shows over HTTP: `/metrics` for Prometheus, `/state` for people and tests, `/livez` and `/readyz` for
//! kubelet.
//!
//! * [`scrape`]: asks all managers at once, each within a deadline; one that hangs costs only its own series.
//! * [`families`]: from what is known to Prometheus's series. Pure, and built anew each time: a pod that ended is not there.
//! * [`state`]: the same facts as JSON, with what is wanted beside what is in force.
//! * [`ready`]: what is still missing before the node can take pods.
//! * [`http`]: the server.
//! * [`steering`]: series of what the managers do with the GPUs' own controls.

pub mod families;
pub mod http;
pub mod ready;
pub mod scrape;
pub mod state;
mod steering;

use std::sync::{Arc, OnceLock};

use sluice_placement::inventory::NodeInventory;
use tokio::sync::watch;

pub use ready::{Part, Readiness};
pub use scrape::{Facts, Sources};

/// The GPUs, once the driver has answered for the first time.
pub type InventorySlot = Arc<OnceLock<watch::Receiver<NodeInventory>>>;
