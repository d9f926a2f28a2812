//! Descriptor escrow: packets by which a pod-manager deposits copies of its control descriptors with the node agent,
//! with the channel groups that are controlled through them. The agent can then enable groups that stay disabled when
//! the manager dies. Packets travel on a socket pair that keeps their boundaries:
//!
//! ```text
//! u32 magic "SLCU"   u32 kind   u64 number
//! kind 0 descriptor: beside it two descriptors: the control descriptor, and the pidfd of the process that it came from
//! kind 1 group:      u64 control descriptor, u32 client, u32 subdevice, u32 channel_group, u32 channels, u32 each channel
//! kind 2 forget      (a group)
//! kind 3 close       (a control descriptor)
//! ```
//! Little-endian, packed, without trailing bytes. The agent sends no answers. The manager assigns the numbers.

use crate::attach::{ContextHandles, MAX_CHANNELS};
use crate::wire::Reader;
use thiserror::Error;

/// First word of every packet: "SLCU".
pub const MAGIC: u32 = u32::from_le_bytes(*b"SLCU");
/// The most bytes of a packet.
pub const MAX_LEN: usize = HEADER + GROUP + 4 * MAX_CHANNELS;
/// The descriptors beside an [`EscrowMessage::Descriptor`]: the control descriptor, then the process's pidfd.
pub const DESCRIPTORS_PER_MESSAGE: usize = 2;

const HEADER: usize = 4 + 4 + 8;
const GROUP: usize = 8 + 4 * 4;

/// One packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EscrowMessage {
    /// A control descriptor: the agent keeps the copy until the process has ended, or until [`EscrowMessage::Close`].
    Descriptor(u64),
    /// A channel group that is controlled through a descriptor; replaces an earlier packet about the group. It may be
    /// disabled from now on.
    Group {
        /// Its number.
        group: u64,
        /// Number of the control descriptor.
        descriptor: u64,
        /// The driver's handles of it. `descriptor` is not transferred and reads as 0.
        handles: ContextHandles,
    },
    /// A group is not controlled any more and has been set free.
    Forget(u64),
    /// The manager has closed a control descriptor.
    Close(u64),
}

/// The reason why bytes are not an escrow packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EscrowError {
    /// The magic word is wrong.
    #[error("deposit begins with 0x{0:08x}, expected 0x{expected:08x}", expected = MAGIC)]
    Magic(u32),
    /// The kind is unknown.
    #[error("deposit is of kind {0}, expected 0 to 3")]
    Kind(u32),
    /// The group has too many channels.
    #[error("deposit has a group of {0} channels, expected at most {MAX_CHANNELS}")]
    Channels(u32),
    /// The packet has fewer or more bytes than its kind requires.
    #[error("deposit has {found} bytes, expected {expected}")]
    Length {
        /// Bytes given.
        found: usize,
        /// Bytes that its kind and count require.
        expected: usize,
    },
}

impl EscrowMessage {
    /// The bytes of the packet. More channels than [`MAX_CHANNELS`] are written as they are; the reader refuses them.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, number) = match self {
            Self::Descriptor(line) => (0_u32, line),
            Self::Group { group, .. } => (1, group),
            Self::Forget(group) => (2, group),
            Self::Close(line) => (3, line),
        };
        let mut bytes = Vec::with_capacity(MAX_LEN);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        if let Self::Group { descriptor: line, handles, .. } = self {
            bytes.extend(line.to_le_bytes());
            let channels = u32::try_from(handles.channels.len()).unwrap_or(u32::MAX);
            let fixed = [handles.client, handles.subdevice, handles.channel_group, channels];
            bytes.extend(fixed.iter().chain(&handles.channels).flat_map(|word| word.to_le_bytes()));
        }
        bytes
    }

    /// Reads the whole of `bytes` as a packet.
    /// Errors: [`EscrowError`] names the first mistake.
    pub fn decode(bytes: &[u8]) -> Result<Self, EscrowError> {
        let mut expected = HEADER;
        let wrong_length = |expected: usize| EscrowError::Length { found: bytes.len(), expected };
        let long_enough =
            |expected| if bytes.len() < expected { Err(wrong_length(expected)) } else { Ok(()) };
        long_enough(expected)?;
        let mut fields = Reader::new(bytes);
        match fields.u32() {
            MAGIC => {}
            found => return Err(EscrowError::Magic(found)),
        }
        let (kind, number) = (fields.u32(), fields.u64());
        let deposit = match kind {
            0 => Self::Descriptor(number),
            1 => {
                expected += GROUP;
                long_enough(expected)?;
                let line = fields.u64();
                let (client, subdevice, channel_group) = (fields.u32(), fields.u32(), fields.u32());
                let channels = match fields.u32() {
                    count if count as usize <= MAX_CHANNELS => count,
                    found => return Err(EscrowError::Channels(found)),
                };
                expected += 4 * channels as usize;
                long_enough(expected)?;
                let channels = (0..channels).map(|_| fields.u32()).collect();
                let handles = ContextHandles { descriptor: 0, client, subdevice, channel_group, channels };
                Self::Group { group: number, descriptor: line, handles }
            }
            2 => Self::Forget(number),
            3 => Self::Close(number),
            found => return Err(EscrowError::Kind(found)),
        };
        if bytes.len() == expected { Ok(deposit) } else { Err(wrong_length(expected)) }
    }
}

#[cfg(test)]
mod tests;
