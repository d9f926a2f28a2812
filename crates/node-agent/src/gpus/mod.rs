//! The node's GPUs: which exist, and which of them may be given to pods now.
//!
//! * [`driver`] is the interface: the trait [`GpuDriver`], implemented by the real driver ([`nvml`]) and by the
//!   tests.
//! * [`xid`] explains the driver's error numbers and which of them are the GPU's fault.
//! * [`health`] is the state machine of one GPU. Pure.
//! * [`registry`] holds all GPUs of the node: observations in, inventory and events out. Pure.
//! * [`watcher`] does the I/O: it scans at intervals and publishes; `xid_listener` waits for Xid events on a thread.
//!
//! # Example
//! ```ignore
//! let gpus = Arc::new(gpus::NvmlDriver::new(flags.paths()));
//! let watched = gpus::watch(gpus, flags.settings(slots), stop /* CancellationToken */).await; // none if stopped
//! let inventory: tokio::sync::watch::Receiver<NodeInventory> = watched.inventory.clone();
//! let events: tokio::sync::broadcast::Receiver<gpus::GpuEvent> = watched.events.subscribe();
//! ```
//! [`watch`] returns after the driver's first answer, so the inventory is true from the beginning. Until then it asks again and
//! logs why there is none.
//!
//! Later the inventory contains every GPU that was ever seen. A lost GPU or an unavailable driver makes GPUs unhealthy with a
//! reason, never absent. `inventory` changes only when its content does, so each change deserves an update of the node, the device
//! slots and the pod-managers. `skipped` lists GPUs in MIG mode, which are not in it. `listens` tells whether Xid events arrive.
//! [`GpuEvent`]s are for Kubernetes events and counters. A slow receiver misses old events (broadcast), never the newest inventory
//! (watch).

pub mod driver;
#[cfg(test)]
#[path = "../../tests/support/fake_gpus.rs"]
#[allow(dead_code, unreachable_pub, reason = "the integration tests use the rest")]
pub(crate) mod fake;
mod flags;
pub mod health;
pub mod nvml;
mod probe;
pub mod registry;
pub mod watcher;
pub mod xid;
mod xid_events;
mod xid_listener;

pub use driver::GpuDriver;
pub use flags::Flags;
pub use health::Fault;
pub use nvml::{DriverPaths, NvmlDriver};
pub use registry::{GpuEvent, Skipped};
pub use watcher::{GpuWatch, Settings, watch};
