//! Harness of the preload tests: small C programs under the real hook, on the simulated GPU, with a real pod-manager.
//!
//! The harness builds the programs under test, starts them as separate processes, and reads the simulator's ledger, checksums, exit
//! codes, and the manager's log and metrics. Nothing here links the hook.
//!
//! * [`Node`]: a test bed of `sluice-test-bed` with functions that panic.
//! * [`Tenant`]: a C program of `programs/`, usually under the hook.
//! * [`pod_bed::PodBed`]: a pod-manager that gets its clients from a node agent, and pods as processes in cgroups.
//! * [`recording_manager`], [`faulty_manager`], [`gemini_peers`]: peers of the hook and of the manager that a test controls.
//!
//! An error in the harness ends the test with a message, so its functions panic. A test waits for a condition, never for a time;
//! [`waiting::TIMEOUT`] only ends a test that hangs.
#![forbid(unsafe_code)]

pub mod artifacts;
pub mod checks;
pub mod compiled_programs;
pub mod faulty_manager;
pub mod gemini_frames;
pub mod gemini_peers;
pub mod host_time;
pub mod machine_lock;
pub mod node;
pub mod pod_bed;
pub mod recording_manager;
mod stepped_clock;
pub mod tenant;
pub mod waiting;

pub use machine_lock::{exclusive, shared};
pub use node::{Node, NodeOptions};
pub use sluice_test_bed::Metrics;
pub use tenant::{Ending, Tenant, TenantOptions};
pub use waiting::eventually;

/// One mebibyte, in bytes.
pub const MIB: u64 = 1 << 20;

/// One millisecond, in nanoseconds of simulated time.
pub const MS: u64 = 1_000_000;
