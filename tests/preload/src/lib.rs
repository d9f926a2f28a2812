//! Black-box tests: small C programs under the real hook, on the simulated GPU, with a real pod-manager.
//!
//! The harness builds what is under test, starts it as separate processes and reads the witnesses: the simulator's
//! ledger, checksums, exit codes, the manager's log and metrics. Nothing here links the hook.
//!
//! Whatever goes wrong in the harness ends the test with a message, so its functions panic where a library would
//! return an error. Waiting is always for something to be seen; [`patience`] is a guard against hanging and never
//! part of what is tested.
#![forbid(unsafe_code)]

pub mod artifacts;
pub mod checks;
pub mod exclusive;
pub mod gemini;
pub mod http;
pub mod impostor;
pub mod node;
pub mod patience;
pub mod pods;
pub mod programs;
pub mod steerer;
pub mod tenant;
pub mod wire;

pub use exclusive::{alone, beside_others};
pub use node::{Node, NodeOptions};
pub use patience::eventually;
pub use tenant::{Ending, Tenant, TenantOptions};

/// One mebibyte, in bytes.
pub const MIB: u64 = 1 << 20;

/// One millisecond, in nanoseconds of simulated time.
pub const MS: u64 = 1_000_000;
