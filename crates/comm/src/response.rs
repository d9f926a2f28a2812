//! Answers: 40 bytes. They carry no type, so the reader must know the type of the request.

use crate::error::{flag, time};
use crate::wire::{Reader, Writer};
use crate::{AttachStatus, FrameError, RESPONSE_LEN, RequestKind};

/// One answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Response {
    /// The id of the request that is answered.
    pub id: i32,
    /// The payload.
    pub body: ResponseBody,
}

/// Payload of an answer, by the type of request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ResponseBody {
    /// A grant.
    Quota {
        /// Its duration in milliseconds; finite and not negative.
        quota_ms: f64,
    },
    /// The client's memory account, in bytes.
    MemLimit {
        /// Charged, over all processes of the client.
        used: u64,
        /// Allowed.
        limit: u64,
    },
    /// Result of a charge or release.
    MemUpdate {
        /// Whether the charge was made.
        granted: bool,
    },
    /// Result of an ATTACH. On the token channel two descriptors travel beside it: grant page, report page.
    Attach {
        /// Attached, or the reason why not.
        status: AttachStatus,
        /// Version of the pages: [`crate::page::PAGE_VERSION`].
        page_version: u32,
    },
    /// The process is detached.
    Detach,
    /// Whether a process is of the same client.
    OwnProcess {
        /// It is.
        own: bool,
    },
}

impl Response {
    /// The frame to send, whole. A quota that is not a time (not finite, or negative) goes out as 0.0: no grant.
    pub fn encode(&self) -> [u8; RESPONSE_LEN] {
        let mut frame = Writer::<RESPONSE_LEN>::new();
        frame.put(&self.id.to_le_bytes());
        match self.body {
            ResponseBody::Quota { quota_ms } => {
                frame.put(&time("quota_ms", quota_ms).unwrap_or(0.0).to_le_bytes())
            }
            ResponseBody::MemLimit { used, limit } => {
                frame.put(&used.to_le_bytes()).put(&limit.to_le_bytes())
            }
            ResponseBody::MemUpdate { granted } => frame.put(&i32::from(granted).to_le_bytes()),
            ResponseBody::Attach { status, page_version } => {
                frame.put(&(status as u32).to_le_bytes()).put(&page_version.to_le_bytes())
            }
            ResponseBody::Detach => frame.put(&0_u32.to_le_bytes()),
            ResponseBody::OwnProcess { own } => frame.put(&i32::from(own).to_le_bytes()),
        };
        frame.finish()
    }

    /// Reads a whole frame as the answer to a request of `kind`. Bytes behind the fields are ignored.
    /// Errors: [`FrameError`] names the field that breaks the protocol; [`FrameError::NotAnswered`] for YIELD
    /// and CONTEXTS.
    pub fn decode(frame: &[u8; RESPONSE_LEN], kind: RequestKind) -> Result<Self, FrameError> {
        let mut fields = Reader::new(frame);
        let id = fields.i32();
        let body = match kind {
            RequestKind::Quota => ResponseBody::Quota { quota_ms: time("quota_ms", fields.f64())? },
            RequestKind::MemLimit => ResponseBody::MemLimit { used: fields.u64(), limit: fields.u64() },
            RequestKind::MemUpdate => ResponseBody::MemUpdate { granted: flag("verdict", fields.i32())? },
            RequestKind::Attach => ResponseBody::Attach {
                status: AttachStatus::try_from(fields.u32())?,
                page_version: fields.u32(),
            },
            RequestKind::Detach => match fields.u32() {
                0 => ResponseBody::Detach,
                number => return Err(FrameError::UnknownStatus(number)),
            },
            RequestKind::OwnProcess => ResponseBody::OwnProcess { own: flag("own", fields.i32())? },
            RequestKind::Yield | RequestKind::Contexts => {
                return Err(FrameError::NotAnswered(kind));
            }
        };
        Ok(Self { id, body })
    }
}
