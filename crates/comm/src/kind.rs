//! The small enumerations of the wire, each with the number it has there.

use crate::{FrameError, REQUEST_LEN, wire};

/// What a request asks for. 0 to 2 are Gemini's; from 16 on for the unix socket only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum RequestKind {
    /// GPU time, in milliseconds. The answer may take as long as the policy wants.
    Quota = 0,
    /// How much memory is used and allowed.
    MemLimit = 1,
    /// Charge or release memory.
    MemUpdate = 2,
    /// First frame of a unix-socket connection; the attach payload travels beside it as a sealed memfd.
    Attach = 16,
    /// The grant goes back to the manager. Not answered.
    Yield = 17,
    /// Latency-critical work is about to come. Not answered.
    Hint = 18,
    /// The process leaves in order.
    Detach = 19,
    /// Other contexts than announced before: payload and descriptors as beside ATTACH. Only on the token connection, once
    /// attached; it replaces all that was announced. Not answered.
    Contexts = 20,
}

impl RequestKind {
    /// Every kind, in the order of the wire's numbers.
    pub const ALL: [Self; 8] = [
        Self::Quota,
        Self::MemLimit,
        Self::MemUpdate,
        Self::Attach,
        Self::Yield,
        Self::Hint,
        Self::Detach,
        Self::Contexts,
    ];

    /// The longest name, in bytes, that leaves room for this kind's payload.
    #[must_use]
    pub const fn max_name_len(self) -> usize {
        REQUEST_LEN - wire::HEADER - self.payload_len()
    }

    /// Whether the peer answers this request at all.
    #[must_use]
    pub const fn is_answered(self) -> bool {
        !matches!(self, Self::Yield | Self::Hint | Self::Contexts)
    }

    /// Bytes after the type field.
    const fn payload_len(self) -> usize {
        match self {
            Self::Quota | Self::Yield | Self::Attach => 16,
            Self::MemUpdate => 12,
            Self::Hint | Self::Contexts => 4,
            Self::MemLimit | Self::Detach => 0,
        }
    }
}

impl TryFrom<u32> for RequestKind {
    type Error = FrameError;

    fn try_from(number: u32) -> Result<Self, FrameError> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number).ok_or(FrameError::UnknownType { number })
    }
}

/// Which of a process's two connections an ATTACH opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Channel {
    /// Memory accounting: never waits.
    Memory = 0,
    /// Tokens: a QUOTA may wait for long. Its ATTACH is answered with the two pages.
    Token = 1,
}

impl TryFrom<u32> for Channel {
    type Error = FrameError;

    fn try_from(number: u32) -> Result<Self, FrameError> {
        [Self::Memory, Self::Token]
            .into_iter()
            .find(|channel| *channel as u32 == number)
            .ok_or(FrameError::UnknownChannel { number })
    }
}

/// How the manager answers an ATTACH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum AttachStatus {
    /// Attached.
    Ok = 0,
    /// Nobody of that identity has a share of this GPU.
    UnknownClient = 1,
    /// The manager does not speak the protocol version asked for.
    WrongVersion = 2,
    /// The descriptor beside the frame was missing, not sealed, or not an attach payload.
    BadPayload = 3,
    /// Known, but not admitted: attached twice on one connection, for instance.
    NotAllowed = 4,
}

impl TryFrom<u32> for AttachStatus {
    type Error = FrameError;

    fn try_from(number: u32) -> Result<Self, FrameError> {
        [Self::Ok, Self::UnknownClient, Self::WrongVersion, Self::BadPayload, Self::NotAllowed]
            .into_iter()
            .find(|status| *status as u32 == number)
            .ok_or(FrameError::UnknownStatus { number })
    }
}
