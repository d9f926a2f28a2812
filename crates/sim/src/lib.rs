//! A simulated GPU shared by processes.
//!
//! * [`engine`] is the GPU: a discrete-event timeline in nanoseconds, stepped by whoever owns it.
//! * [`daemon`] couples it to CLOCK_MONOTONIC and serves it to processes over a unix socket and shared memory.
//! * [`client`] is a process's side of that protocol, used by `libcuda.so.1` of the `sluice-sim-cuda` crate.
//! * [`ledger`] is what the GPU itself says about shares, kernels and memory; nobody else is asked.
//! * [`fault`] is what an Xid leaves behind, [`identity`] how a GPU is told from others.
//! * [`module`] and [`effect`] are what a kernel is: a duration and something that it does to memory.
//! * [`rm`] is the driver's resource manager: objects, and the controls of channel groups.
//! * [`params`] holds every number that was measured on an H200.
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
