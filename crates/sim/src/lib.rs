//! A simulated GPU shared by processes, for tests, demos and machines without a GPU.
//!
//! * [`engine`]: the GPU, a discrete-event timeline in nanoseconds. The caller steps it, so tests need no real time.
//! * [`daemon`]: couples the engine to a clock and serves it to processes over a unix socket and shared memory.
//! * [`client`]: a process's side of that protocol, used by `libcuda.so.1` (crate `sluice-sim-cuda`).
//! * [`ledger`]: the GPU's own record of shares, kernels and memory, independent of what processes report.
//! * [`fault`]: the lasting effect of an Xid. [`identity`]: UUID and PCI address of a GPU.
//! * [`module`] and [`effect`]: kernels, as a duration and an effect on memory.
//! * [`rm`]: the driver's resource manager: objects, and the controls of channel groups.
//! * [`params`]: every number that was measured on an H200.
//!
//! ```
//! use sluice_sim::engine::Engine;
//! use sluice_sim::params;
//!
//! let engine = Engine::new(params::MEMORY_BYTES, 0);
//! assert!(engine.account().free_bytes() > 0);
//! ```
#![forbid(unsafe_code)]

pub mod client;
pub mod daemon;
pub mod effect;
pub mod engine;
pub mod fault;
pub mod identity;
pub mod ledger;
pub mod library;
pub mod module;
pub mod params;
pub mod rm;
mod wire;
