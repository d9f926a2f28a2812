//! The wire between hook and pod-manager: frames, attach payload and the layout of the shared pages.
//!
//! Sans-IO: bytes come in, values go out, and the other way round. Who reads a socket or maps a page is somebody
//! else's business, so everything here runs under miri, loom and the fuzzer.
//!
//! Requests are 80 bytes, answers 40, little-endian and packed as Gemini sends them; types from 16 on are
//! extensions for the unix socket.
#![forbid(unsafe_code)]

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("Gemini's frames are in host order of 64-bit little-endian machines, and so is this crate");

pub mod attach;
pub mod custody;
mod error;
mod kind;
mod name;
pub mod page;
mod reader;
mod request;
mod response;
mod wire;

pub use error::FrameError;
pub use kind::{AttachStatus, Channel, RequestKind};
pub use name::{Name, NameError};
pub use reader::FrameReader;
pub use request::{Request, RequestBody};
pub use response::{Response, ResponseBody};

/// How long a hook waits for an answer that a manager can give at once, ATTACH's among them. A manager that has not
/// decided by then is as good as gone to it.
pub const HOOK_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
/// Bytes of every request, whatever its type.
pub const REQUEST_LEN: usize = 80;
/// Bytes of every answer, whatever the request.
pub const RESPONSE_LEN: usize = 40;
