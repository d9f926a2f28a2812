//! Requests: 80 bytes, the fields packed behind a name of variable length.
//!
//! ```text
//! offset 0     u64 n       length of the name, without its NUL
//!        8     n bytes     name
//!        8+n   0x00
//!        9+n   i32         id, echoed by the answer
//!       13+n   u32         type
//!       17+n               payload; the rest is zero
//! ```
//! Bytes behind the payload are written as zeroes and ignored when reading.

use crate::error::{flag, time};
use crate::wire::{Reader, Writer};
use crate::{Channel, FrameError, Name, REQUEST_LEN, RequestKind};

/// One request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// Name that the client gives itself.
    pub name: Name,
    /// Number of the request on its connection; the answer repeats it.
    pub id: i32,
    /// Type and payload.
    pub body: RequestBody,
}

/// Type and payload of a request. All times are in milliseconds, finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RequestBody {
    /// Requests a grant.
    Quota {
        /// GPU time of the last grant after its deadline.
        overuse_ms: f64,
        /// Expected duration of the next burst of kernels.
        next_burst_ms: f64,
    },
    /// Requests the used and the allowed memory.
    MemLimit,
    /// Charges memory before its allocation, or releases it.
    MemUpdate {
        /// Bytes.
        bytes: u64,
        /// Charge (true) or release.
        allocate: bool,
    },
    /// Opens a connection of the extended protocol.
    Attach {
        /// Protocol version: [`crate::attach::ATTACH_VERSION`].
        version: u32,
        /// Which of the two connections this is.
        channel: Channel,
        /// Device memory that the process holds already (after a manager's restart), in bytes.
        used_bytes: u64,
    },
    /// Returns the grant.
    Yield {
        /// GPU time used under the grant.
        used_ms: f64,
        /// GPU time after the deadline.
        overuse_ms: f64,
    },
    /// Detaches.
    Detach,
    /// Replaces the announced contexts.
    Contexts {
        /// Protocol version: [`crate::attach::ATTACH_VERSION`].
        version: u32,
    },
    /// Asks whether a process is of the same client.
    OwnProcess {
        /// Its number as NVML reports it to the asking process.
        pid: u32,
    },
}

impl RequestBody {
    /// The type of request.
    pub fn kind(&self) -> RequestKind {
        match self {
            Self::Quota { .. } => RequestKind::Quota,
            Self::MemLimit => RequestKind::MemLimit,
            Self::MemUpdate { .. } => RequestKind::MemUpdate,
            Self::Attach { .. } => RequestKind::Attach,
            Self::Yield { .. } => RequestKind::Yield,
            Self::Detach => RequestKind::Detach,
            Self::Contexts { .. } => RequestKind::Contexts,
            Self::OwnProcess { .. } => RequestKind::OwnProcess,
        }
    }
}

impl Request {
    /// The frame to send, whole.
    /// Errors: [`FrameError::NameTooLong`] if the name leaves no room for the payload, [`FrameError::BadTime`]
    /// for a time that is not finite or negative.
    pub fn encode(&self) -> Result<[u8; REQUEST_LEN], FrameError> {
        let kind = self.body.kind();
        if self.name.len() > kind.max_name_len() {
            return Err(FrameError::NameTooLong { kind, len: self.name.len() });
        }
        let mut frame = Writer::<REQUEST_LEN>::new();
        frame.put(&(self.name.len() as u64).to_le_bytes()).put(self.name.as_bytes()).put(&[0]);
        frame.put(&self.id.to_le_bytes()).put(&(kind as u32).to_le_bytes());
        match self.body {
            RequestBody::Quota { overuse_ms, next_burst_ms } => {
                frame.put(&time("overuse_ms", overuse_ms)?.to_le_bytes());
                frame.put(&time("next_burst_ms", next_burst_ms)?.to_le_bytes());
            }
            RequestBody::MemUpdate { bytes, allocate } => {
                frame.put(&bytes.to_le_bytes()).put(&i32::from(allocate).to_le_bytes());
            }
            RequestBody::Attach { version, channel, used_bytes } => {
                frame.put(&version.to_le_bytes()).put(&(channel as u32).to_le_bytes());
                frame.put(&used_bytes.to_le_bytes());
            }
            RequestBody::Yield { used_ms, overuse_ms } => {
                frame.put(&time("used_ms", used_ms)?.to_le_bytes());
                frame.put(&time("overuse_ms", overuse_ms)?.to_le_bytes());
            }
            RequestBody::Contexts { version } => {
                frame.put(&version.to_le_bytes());
            }
            RequestBody::OwnProcess { pid } => {
                frame.put(&pid.to_le_bytes());
            }
            RequestBody::MemLimit | RequestBody::Detach => {}
        }
        Ok(frame.finish())
    }

    /// Reads a whole frame.
    /// Errors: [`FrameError`] names the first field, in the order of the wire, that breaks the protocol.
    pub fn decode(frame: &[u8; REQUEST_LEN]) -> Result<Self, FrameError> {
        let mut fields = Reader::new(frame);
        let len = fields.u64();
        let len = match usize::try_from(len) {
            Ok(len @ 1..=Name::MAX) => len,
            _ => return Err(FrameError::NameLength(len)),
        };
        let name = Name::from_bytes(fields.bytes(len))?;
        let terminator = fields.u8();
        if terminator != 0 {
            return Err(FrameError::NotTerminated { at: 8 + len, byte: terminator });
        }
        let id = fields.i32();
        let kind = RequestKind::try_from(fields.u32())?;
        if len > kind.max_name_len() {
            return Err(FrameError::NameTooLong { kind, len });
        }
        let body = match kind {
            RequestKind::Quota => RequestBody::Quota {
                overuse_ms: time("overuse_ms", fields.f64())?,
                next_burst_ms: time("next_burst_ms", fields.f64())?,
            },
            RequestKind::MemLimit => RequestBody::MemLimit,
            RequestKind::MemUpdate => {
                RequestBody::MemUpdate { bytes: fields.u64(), allocate: flag("is_allocate", fields.i32())? }
            }
            RequestKind::Attach => RequestBody::Attach {
                version: fields.u32(),
                channel: Channel::try_from(fields.u32())?,
                used_bytes: fields.u64(),
            },
            RequestKind::Yield => RequestBody::Yield {
                used_ms: time("used_ms", fields.f64())?,
                overuse_ms: time("overuse_ms", fields.f64())?,
            },
            RequestKind::Detach => RequestBody::Detach,
            RequestKind::Contexts => RequestBody::Contexts { version: fields.u32() },
            RequestKind::OwnProcess => RequestBody::OwnProcess { pid: fields.u32() },
        };
        Ok(Self { name, id, body })
    }
}
