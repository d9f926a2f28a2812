//! Errors of frames: each names the field, the value found and the values expected.

use crate::{Name, NameError, RequestKind};
use thiserror::Error;

/// A frame that breaks the protocol. The receiver closes its connection, because the next frame may be misaligned.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum FrameError {
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name leaves no room for the payload of its request type.
    #[error("client name has {len} bytes, a {kind:?} request has room for {max}", max = kind.max_name_len())]
    NameTooLong {
        /// The type of request.
        kind: RequestKind,
        /// Bytes of the name.
        len: usize,
    },
    /// The length field exceeds the room of any frame.
    #[error("name length field says {0}, expected 1 to {max}", max = Name::MAX)]
    NameLength(u64),
    /// The name is not followed by a NUL.
    #[error("byte 0x{byte:02x} at offset {at} after the client name, expected the NUL that ends it")]
    NotTerminated {
        /// Offset in the frame.
        at: usize,
        /// The byte found there.
        byte: u8,
    },
    /// No request has this number.
    #[error("request type {0}, expected 0 to 2 or 16 to 21")]
    UnknownType(u32),
    /// A time that is negative or not finite.
    #[error("{field} is {value} ms, expected a finite number that is not negative")]
    BadTime {
        /// The field's name in the protocol.
        field: &'static str,
        /// The value found.
        value: f64,
    },
    /// A flag that is neither 0 nor 1.
    #[error("{field} is {value}, expected 0 or 1")]
    BadFlag {
        /// The field's name in the protocol.
        field: &'static str,
        /// The value found.
        value: i32,
    },
    /// Neither of the two channels.
    #[error("attach channel is {0}, expected 0 (memory) or 1 (token)")]
    UnknownChannel(u32),
    /// A status that the request cannot be answered with.
    #[error("answer status is {0}, expected 0 to 4 after ATTACH, 0 after DETACH")]
    UnknownStatus(u32),
    /// An answer to a request that has none.
    #[error("answer to a {0:?} request, expected none")]
    NotAnswered(RequestKind),
}

/// Checks that a time is finite and not negative.
pub(crate) fn time(field: &'static str, value: f64) -> Result<f64, FrameError> {
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(FrameError::BadTime { field, value }) }
}

/// Reads a flag.
pub(crate) fn flag(field: &'static str, value: i32) -> Result<bool, FrameError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(FrameError::BadFlag { field, value }),
    }
}
