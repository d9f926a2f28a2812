//! A test bed: a simulated or real GPU, a pod-manager and tenants, each a process of its own.
//!
//! The demo and the doctor (`sluice`), the benchmarks (`sluice-dev`) and the preload tests run the real programs under the real
//! hook. This crate starts these programs, reads what they print, and ends them. Nothing here links the hook.
//!
//! * [`TestBed`]: a temporary directory with the simulator daemon and the pod-manager.
//! * [`Tenant`]: a load generator (`sluice load`) under the hook, and the records that it has printed.
//! * [`Worker`]: a program that answers each line of input with one line of output.
//! * [`Process`]: any child process; it is killed when it is dropped.
//! * [`SimulatedGpu`]: the simulator's ledger, the measurements that no tenant or manager can influence.
//! * [`PodCgroups`]: cgroups by which a pod-manager identifies the pods of its clients.
//! * [`Report`]: a list of checks, each with its figures.
//!
//! ```no_run
//! use sluice_test_bed::{Artifacts, Tenant, TestBed, TestBedOptions};
//!
//! # fn main() -> anyhow::Result<()> {
//! let artifacts = Artifacts::beside("target/debug/sluice".as_ref(), true)?;
//! let options = TestBedOptions {
//!     simulated: true,
//!     resource_file: "1\ntenant 0.5 1.0 8589934592\n".to_owned(),
//!     ..TestBedOptions::default()
//! };
//! let bed = TestBed::start(artifacts, options, || Ok(()))?;
//! let tenant = Tenant::start(&bed, "first", "tenant", ["be", "--count", "100"])?;
//! # drop(tenant);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod http;
mod interrupts;
mod metrics;
mod pod_cgroups;
mod process;
mod report;
mod simulated_gpu;
mod tenant;
mod test_bed;
pub mod timeline;
mod worker;

pub use interrupts::{Interrupts, end_with_parent};
pub use metrics::Metrics;
pub use pod_cgroups::PodCgroups;
pub use process::{NoLine, Output, Process};
pub use report::Report;
pub use simulated_gpu::{SimulatedGpu, start_simulator};
pub use tenant::Tenant;
pub use test_bed::{Artifacts, TestBed, TestBedOptions};
pub use worker::Worker;
