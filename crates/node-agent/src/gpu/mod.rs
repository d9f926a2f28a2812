//! The node's GPUs: which there are, and which of them may be given to pods at the moment.
//!
//! * [`source`] is the question that is asked: the trait [`Gpus`], answered by the driver ([`nvml`]) or, in tests, by
//!   hand ([`fake`]).
//! * [`xid`] says what the driver's error numbers mean and which of them are the GPU's fault.
//! * [`health`] is the rule: one GPU's state and what an observation makes of it. Pure.
//! * [`fleet`] is the rule for all GPUs of the node: observations in, inventory and news out. Pure.
//! * [`watcher`] asks: it polls, waits for Xid events on a thread of its own, and publishes.
//!
//! # For those who build on it
//! ```ignore
//! let gpus = Arc::new(gpu::Driver::new(flags.paths()));                // or gpu::fake::FakeGpus::healthy(2)
//! let watched = gpu::watch(gpus, flags.settings(seats), stop /* CancellationToken */).await; // none if stopped
//! let inventory: tokio::sync::watch::Receiver<NodeInventory> = watched.inventory.clone();
//! let news: tokio::sync::broadcast::Receiver<gpu::News> = watched.news.subscribe();
//! ```
//! [`watch`] returns when the driver has answered for the first time (it asks again and again until then, and logs why not),
//! so the inventory is true from the beginning. After that the inventory always has every GPU that was ever seen: one that is
//! lost, or a driver that no longer answers, makes GPUs unhealthy with a reason, never absent. `inventory` changes only
//! when something in it changes, so a change is worth an update of the node, the seats, and the pod-managers. GPUs in MIG mode
//! are not in it; `skipped` says which and why. `listens` says whether Xid events reach us or polling is all there is. [`News`] are for events and counters: each Xid, each GPU that became
//! unhealthy or healthy. Whoever is slow misses old news (broadcast), never the newest inventory (watch).

mod events;
pub mod fake;
mod flags;
pub mod fleet;
pub mod health;
pub mod nvml;
mod probe;
pub mod source;
pub mod watcher;
pub mod xid;

pub use flags::Flags;
pub use fleet::{News, Skipped};
pub use health::Sickness;
pub use nvml::{Driver, DriverPaths};
pub use source::Gpus;
pub use watcher::{Settings, Watched, watch};
