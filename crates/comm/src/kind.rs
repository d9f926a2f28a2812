//! The enumerations of the wire with their numbers.

use crate::{FrameError, REQUEST_LEN, wire};

/// Type of a request. 0 to 2 are Gemini's; types from 16 on exist on the unix socket only. 18 stays free: it announced requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum RequestKind {
    /// Requests a grant, in milliseconds. The answer comes when the ledger grants it.
    Quota = 0,
    /// Requests the used and the allowed memory.
    MemLimit = 1,
    /// Charges or releases memory.
    MemUpdate = 2,
    /// First frame of a unix-socket connection; the attach payload travels beside it as a sealed memfd.
    Attach = 16,
    /// Returns the grant. Not answered.
    Yield = 17,
    /// The process detaches.
    Detach = 19,
    /// Replaces all announced contexts: payload and descriptors as beside ATTACH. Only on the token connection, after
    /// ATTACH. Not answered.
    Contexts = 20,
    /// Asks whether a process is of the same client. Only after ATTACH.
    OwnProcess = 21,
}

impl RequestKind {
    /// Every kind, in the order of the wire's numbers.
    pub const ALL: [Self; 8] = [
        Self::Quota,
        Self::MemLimit,
        Self::MemUpdate,
        Self::Attach,
        Self::Yield,
        Self::Detach,
        Self::Contexts,
        Self::OwnProcess,
    ];

    /// The longest name, in bytes, that leaves room for this kind's payload.
    pub const fn max_name_len(self) -> usize {
        REQUEST_LEN - wire::HEADER - self.payload_len()
    }

    /// Bytes after the type field.
    const fn payload_len(self) -> usize {
        match self {
            Self::Quota | Self::Yield | Self::Attach => 16,
            Self::MemUpdate => 12,
            Self::Contexts | Self::OwnProcess => 4,
            Self::MemLimit | Self::Detach => 0,
        }
    }
}

impl TryFrom<u32> for RequestKind {
    type Error = FrameError;

    fn try_from(number: u32) -> Result<Self, FrameError> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number).ok_or(FrameError::UnknownType(number))
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
            .ok_or(FrameError::UnknownChannel(number))
    }
}

/// The manager's answer to an ATTACH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum AttachStatus {
    /// Attached.
    Ok = 0,
    /// No client of that identity has a share of this GPU.
    UnknownClient = 1,
    /// The manager does not support the requested protocol version.
    WrongVersion = 2,
    /// The descriptor beside the frame was missing, not sealed, or not an attach payload.
    BadPayload = 3,
    /// Known, but not admitted: attached twice on one connection, for instance.
    NotAllowed = 4,
    /// The pod is not a client yet: another answer follows. Repeated at each heartbeat, so that the hook sees that the
    /// manager runs. Only for payloads from version 3 on.
    Pending = 5,
    /// The manager has no room for the connection; the hook asks again. Sent without a request too, under
    /// [`UNREAD_REQUEST_ID`], because such a connection is closed before it is read.
    NoRoom = 6,
}

/// The id of an answer to an ATTACH that the manager has not read. Hooks number their requests from 0.
pub const UNREAD_REQUEST_ID: i32 = i32::MIN;

impl TryFrom<u32> for AttachStatus {
    type Error = FrameError;

    fn try_from(number: u32) -> Result<Self, FrameError> {
        [
            Self::Ok,
            Self::UnknownClient,
            Self::WrongVersion,
            Self::BadPayload,
            Self::NotAllowed,
            Self::Pending,
            Self::NoRoom,
        ]
        .into_iter()
        .find(|status| *status as u32 == number)
        .ok_or(FrameError::UnknownStatus(number))
    }
}
