//! Why a frame cannot be sent or was refused: each error says which field, what it held and what was expected.

use crate::{Name, NameError, RequestKind};
use thiserror::Error;

/// A frame that breaks the protocol. The connection it came from cannot be trusted to be in step and is closed.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum FrameError {
    /// The name is not one.
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
    /// The length field promises more than any frame can hold.
    #[error("name length field says {len}, expected 1 to {max}", max = Name::MAX)]
    NameLength {
        /// What the field says.
        len: u64,
    },
    /// The name is not followed by a NUL.
    #[error("byte 0x{byte:02x} at offset {at} after the client name, expected the NUL that ends it")]
    NotTerminated {
        /// Offset in the frame.
        at: usize,
        /// The byte found there.
        byte: u8,
    },
    /// No request has this number.
    #[error("request type {number}, expected 0 to 2 or 16 to 20")]
    UnknownType {
        /// The number.
        number: u32,
    },
    /// A time that cannot be one.
    #[error("{field} is {value} ms, expected a finite number that is not negative")]
    BadTime {
        /// The field's name in the protocol.
        field: &'static str,
        /// What it held.
        value: f64,
    },
    /// A yes-or-no field that is neither.
    #[error("{field} is {value}, expected 0 or 1")]
    BadFlag {
        /// The field's name in the protocol.
        field: &'static str,
        /// What it held.
        value: i32,
    },
    /// Neither of the two channels.
    #[error("attach channel is {number}, expected 0 (memory) or 1 (token)")]
    UnknownChannel {
        /// What the field held.
        number: u32,
    },
    /// A status that the request cannot be answered with.
    #[error("answer status is {number}, expected 0 to 4 after ATTACH, 0 after DETACH")]
    UnknownStatus {
        /// What the field held.
        number: u32,
    },
    /// An answer to a request that has none.
    #[error("answer to a {kind:?} request, expected none")]
    NotAnswered {
        /// The type of request.
        kind: RequestKind,
    },
}

/// Lets a time through only if it is one.
pub(crate) fn time(field: &'static str, value: f64) -> Result<f64, FrameError> {
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(FrameError::BadTime { field, value }) }
}

/// Reads a yes-or-no field.
pub(crate) fn flag(field: &'static str, value: i32) -> Result<bool, FrameError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(FrameError::BadFlag { field, value }),
    }
}
