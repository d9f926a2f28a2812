//! Shares, quotas, ledgers and the resource file of one GPU: pure arithmetic, no I/O, no clock.
//!
//! Time is `u64` nanoseconds of a monotonic clock that the caller reads, memory is `u64` bytes, shares are parts per
//! million. The public questions: who may use the GPU ([`ledger`]) and how that is enforced ([`steering`]), who may have how
//! much memory ([`memory`]), and what were they promised ([`resources`]).
#![forbid(unsafe_code)]

pub mod backoff;
pub mod bucket;
pub mod gates;
pub mod ids;
pub mod ledger;
pub mod memory;
pub mod pod_cgroup;
pub mod quota;
pub mod rate_limiter;
pub mod resources;
pub mod share;
pub mod steering;
pub mod window;

pub use ids::{ClientId, ProcessId};
pub use share::Share;
