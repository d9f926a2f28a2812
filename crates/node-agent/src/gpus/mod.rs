//! The node's GPUs: which exist, and which of them may be given to pods now.
//!
//! [`watch`] returns after the driver's first answer, so the inventory is true from the beginning. Later the inventory
//! contains every GPU that was ever seen: a lost GPU or an unavailable driver makes GPUs unhealthy with a reason, never
//! absent. It changes only when its content does, so each change deserves an update of the node, the device slots and
//! the pod-managers. A slow receiver of [`GpuEvent`]s misses old events (broadcast), never the newest inventory (watch).

mod context_reserve;
pub mod driver;
#[cfg(test)]
#[path = "../../tests/support/fake_gpus.rs"]
#[allow(dead_code, unreachable_pub, reason = "the integration tests use the rest")]
pub(crate) mod fake;
mod flags;
pub mod health;
mod host_memory;
mod instances;
pub mod nvml;
mod probe;
pub mod registry;
pub mod watcher;
pub mod xid;
mod xid_events;

pub use context_reserve::ContextReserve;
pub use driver::GpuDriver;
pub use flags::Flags;
pub use health::Fault;
pub use host_memory::HostMemory;
pub use nvml::{DriverPaths, Mig, NvmlDriver};
pub use registry::{GpuEvent, Skipped};
pub use watcher::{GpuWatch, Settings, watch};
