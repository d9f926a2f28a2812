//! The wire between hook, pod-manager and node agent: frames, attach payload, shared pages and escrow packets.
//!
//! Sans-IO: every function converts between bytes and values. Reading sockets and mapping pages is left to the caller,
//! so everything here runs under miri, loom and the fuzzer.
//!
//! * [`Request`] (80 bytes) and [`Response`] (40 bytes): little-endian and packed as Gemini sends them. Types from 16
//!   on are extensions for the unix socket. [`FrameReader`] assembles them from a stream.
//! * [`attach::AttachPayload`]: the contexts of a process, sent beside ATTACH in a sealed memfd.
//! * [`page::GrantView`] and [`page::ReportView`]: the two shared pages of a process.
//! * [`latency`]: the buckets of the latencies on a report page.
//! * [`escrow`]: copies of control descriptors that the pod-manager sends to the node agent.
//!
//! ```
//! use sluice_comm::{Name, Request, RequestBody};
//!
//! let name = Name::new("default/training-0")?;
//! let body = RequestBody::Quota { overuse_ms: 0.0, next_burst_ms: 5.0 };
//! let request = Request { name, id: 1, body };
//! assert_eq!(Request::decode(&request.encode()?)?, request);
//! # Ok::<(), sluice_comm::FrameError>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!(
    "Gemini's frames have the byte order of 64-bit little-endian machines; this crate supports no other"
);

pub mod attach;
mod error;
pub mod escrow;
mod hand_off_step;
mod kind;
pub mod latency;
mod name;
pub mod page;
mod reader;
mod request;
mod response;
mod wire;

pub use error::FrameError;
pub use hand_off_step::{HAND_OFF_STEPS, HandOffStep};
pub use kind::{AttachStatus, Channel, RequestKind, UNREAD_REQUEST_ID};
pub use name::{Name, NameError};
pub use reader::FrameReader;
pub use request::{Request, RequestBody};
pub use response::{Response, ResponseBody};

/// How long a hook waits at most for the answer to an ATTACH whose pod is not known yet, and for any answer but a grant
/// while the manager's heartbeat is fresh. The hook then treats the manager as absent.
pub const HOOK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
/// The longest pause between two heartbeats of a manager that has a client, in nanoseconds.
pub const HEARTBEAT_INTERVAL_NS: u64 = 50_000_000;
/// A manager whose last heartbeat is older than this is silent, in nanoseconds: the hook treats it as lost. Four
/// intervals, so that a manager that the operating system delays by a few scheduling periods does not count as lost.
pub const SILENCE_NS: u64 = 200_000_000;
/// Bytes of a request of any type.
pub const REQUEST_LEN: usize = 80;
/// Bytes of an answer to any request.
pub const RESPONSE_LEN: usize = 40;

/// Milliseconds of the wire in nanoseconds; saturates.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer conversion saturates"
)]
pub fn ms_to_ns(ms: f64) -> u64 {
    (ms * 1e6) as u64
}
