//! Scheduling of one GPU among clients: pure state machines and arithmetic, without I/O, clock or randomness.
//!
//! Time is `u64` nanoseconds of a monotonic clock that the caller reads, memory is `u64` bytes, shares are parts per
//! million ([`Share`]).
//!
//! * [`ledger::TokenLedger`] decides which clients may submit work, until when, and charges them.
//! * [`channel_groups::ChannelGroupScheduler`] enforces its grants by enabling and disabling channel groups.
//! * [`processes::Processes`] holds all processes and decides whose groups are under control, and what follows from violations.
//! * [`gangs`] decides when clients with processes on several GPUs run: in the same slot on all of them.
//! * [`deadlines::DeadlineOrder`] decides which latency-critical client has urgent work for which other.
//! * [`energy::EnergyMeter`] attributes the energy of the GPU to clients.
//! * [`memory::MemoryLedger`] accounts the memory of each client and process.
//! * [`residency::Pager`] decides which clients have their memory on the GPU while it does not hold the memory of all.
//! * [`resources`] parses the resource file; [`pod_cgroup`] reads a process's pod from its cgroup path.
//!
//! ```
//! use sluice_core::ledger::{Action, Class, ClientSpec, GrantRequest, Policy, ReturnKind, TokenLedger};
//! use sluice_core::{ClientId, ProcessId, Share};
//!
//! let mut ledger = TokenLedger::new(Policy::default());
//! let spec = ClientSpec { request: Share::ONE, limit: Share::ONE, class: Class::BestEffort };
//! ledger.set_client(ClientId(1), spec, 0);
//! ledger.add_process(ProcessId(7), ClientId(1), ReturnKind::Returns)?;
//! ledger.request(ProcessId(7), 0, GrantRequest::default())?;
//! assert!(matches!(ledger.advance(0)[..], [Action::Grant { process: ProcessId(7), .. }]));
//! # Ok::<(), sluice_core::ledger::Refused>(())
//! ```
#![forbid(unsafe_code)]

pub mod channel_groups;
pub mod deadlines;
pub mod energy;
pub mod gangs;
pub mod ids;
pub mod ledger;
pub mod limit_bucket;
pub mod memory;
pub mod pod_cgroup;
pub mod processes;
pub mod quota;
pub mod residency;
pub mod resources;
pub mod window;

pub use ids::{ClientId, ConnectionId, ProcessId, ProcessKey};
pub use sluice_units::{self as share, Share};
