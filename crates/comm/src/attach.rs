//! The attach payload: a sealed memfd beside an ATTACH, in which a process describes itself and its contexts.
//!
//! ```text
//! u32 magic   "SLAT"
//! u32 version 3
//! u32 pid     in the client's own namespace: not verified, for messages only
//! u32 device_ordinal
//! 16 bytes    device UUID
//! u32 contexts
//! per context: u32 descriptor, u32 client, u32 subdevice, u32 channel_group, u32 channels, u32 each channel
//! ```
//! Little-endian, packed, without trailing bytes. `descriptor` is an index into the control descriptors that travel
//! behind the memfd.
//!
//! The version tells the manager which pages the hook understands: those of the same version. Version 2 has the same
//! layout as version 3. Version 1 has no `descriptor`. It is still read, but its contexts cannot be controlled and are
//! left out.

use crate::wire::Reader;
use thiserror::Error;

/// Version of the extended protocol.
pub const ATTACH_VERSION: u32 = 1;
/// Version of the payload.
pub const PAYLOAD_VERSION: u32 = 3;
/// First word of the payload: "SLAT".
pub const MAGIC: u32 = u32::from_le_bytes(*b"SLAT");
/// The most contexts a process can announce.
pub const MAX_CONTEXTS: usize = 64;
/// The most channels of one context: the limit of one DISABLE_CHANNELS control.
pub const MAX_CHANNELS: usize = 64;
/// The most control descriptors that travel with one payload.
pub const MAX_DESCRIPTORS: usize = 8;
/// The most bytes a payload can have; no need to read more of a descriptor.
pub const MAX_LEN: usize = HEADER + MAX_CONTEXTS * (CONTEXT + 4 * MAX_CHANNELS);

const HEADER: usize = 4 + 4 + 4 + 4 + 16 + 4;
const CONTEXT: usize = 20;
/// The version before the heartbeat, with the layout of the present one.
const WITHOUT_HEARTBEAT: u32 = 2;
/// The version whose contexts have no descriptor.
const WITHOUT_DESCRIPTORS: u32 = 1;

/// A process's description of itself. Nothing in it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachPayload {
    /// Process id in the client's namespace.
    pub pid: u32,
    /// The device as the process numbers them.
    pub device_ordinal: u32,
    /// UUID of the device.
    pub device_uuid: [u8; 16],
    /// Contexts of the process on this device, at most [`MAX_CONTEXTS`].
    pub contexts: Vec<ContextHandles>,
}

/// The driver handles by which one context's channels can be controlled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContextHandles {
    /// Index of its control descriptor, below [`MAX_DESCRIPTORS`].
    pub descriptor: u32,
    /// Resource-manager client.
    pub client: u32,
    /// Subdevice object of that client.
    pub subdevice: u32,
    /// Channel group of the context's compute channels.
    pub channel_group: u32,
    /// Channels of the group, at most [`MAX_CHANNELS`].
    pub channels: Vec<u32>,
}

/// The reason why bytes are not an attach payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AttachError {
    /// The magic word is wrong.
    #[error("attach payload begins with 0x{0:08x}, expected 0x{expected:08x}", expected = MAGIC)]
    Magic(u32),
    /// Another version.
    #[error("attach payload has version {0}, expected 1 to {expected}", expected = PAYLOAD_VERSION)]
    Version(u32),
    /// A count above the maximum.
    #[error("attach payload has {found} {what}, expected at most {max}")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// The count.
        found: usize,
        /// The most that is accepted.
        max: usize,
    },
    /// No descriptor can have this number.
    #[error("attach payload has a context on control descriptor {0}, expected less than {MAX_DESCRIPTORS}")]
    Descriptor(u32),
    /// Fewer or more bytes than the counts require.
    #[error("attach payload has {found} bytes, expected {expected}")]
    Length {
        /// Bytes given.
        found: usize,
        /// Bytes that the header and counts read so far ask for.
        expected: usize,
    },
}

impl AttachPayload {
    /// How many control descriptors its contexts name: the highest number and all below it.
    pub fn descriptors(&self) -> usize {
        self.contexts.iter().map(|context| context.descriptor as usize + 1).max().unwrap_or(0)
    }

    /// The bytes of the payload. More contexts or channels than the maxima are written as they are; the reader
    /// refuses them.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.contexts.len() * CONTEXT);
        for word in [MAGIC, PAYLOAD_VERSION, self.pid, self.device_ordinal] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.device_uuid);
        bytes.extend(count(self.contexts.len()).to_le_bytes());
        for context in &self.contexts {
            let channels = count(context.channels.len());
            let ContextHandles { descriptor, client, subdevice, channel_group, .. } = *context;
            let fixed = [descriptor, client, subdevice, channel_group, channels];
            bytes.extend(fixed.iter().chain(&context.channels).flat_map(|word| word.to_le_bytes()));
        }
        bytes
    }

    /// The bytes of the first version's payload, which every manager reads. It contains no contexts.
    pub fn encode_first(&self) -> Vec<u8> {
        with_version(Self { contexts: Vec::new(), ..*self }.encode(), WITHOUT_DESCRIPTORS)
    }

    /// The bytes of the second version's payload, for managers without a heartbeat.
    pub fn encode_second(&self) -> Vec<u8> {
        with_version(self.encode(), WITHOUT_HEARTBEAT)
    }

    /// Reads the whole of `bytes` as a payload.
    /// Errors: [`AttachError`] names the first mistake.
    pub fn decode(bytes: &[u8]) -> Result<Self, AttachError> {
        let mut expected = HEADER;
        let long_enough = |expected: usize| match bytes.len() < expected {
            true => Err(AttachError::Length { found: bytes.len(), expected }),
            false => Ok(()),
        };
        let mut fields = Reader::new(bytes);
        // Magic and version are checked before the length, so that another payload is refused as such.
        long_enough(8)?;
        match fields.u32() {
            MAGIC => {}
            found => return Err(AttachError::Magic(found)),
        }
        let has_descriptors = match fields.u32() {
            PAYLOAD_VERSION | WITHOUT_HEARTBEAT => true,
            WITHOUT_DESCRIPTORS => false,
            found => return Err(AttachError::Version(found)),
        };
        long_enough(expected)?;
        let (pid, device_ordinal, device_uuid) = (fields.u32(), fields.u32(), fields.array());
        let announced = limited("contexts", fields.u32(), MAX_CONTEXTS)?;
        let mut contexts = Vec::with_capacity(announced);
        for _ in 0..announced {
            expected += if has_descriptors { CONTEXT } else { CONTEXT - 4 };
            long_enough(expected)?;
            let descriptor = if has_descriptors { fields.u32() } else { 0 };
            if descriptor as usize >= MAX_DESCRIPTORS {
                return Err(AttachError::Descriptor(descriptor));
            }
            let (client, subdevice, channel_group) = (fields.u32(), fields.u32(), fields.u32());
            let channels = limited("channels", fields.u32(), MAX_CHANNELS)?;
            expected += 4 * channels;
            long_enough(expected)?;
            let channels = (0..channels).map(|_| fields.u32()).collect();
            contexts.push(ContextHandles { descriptor, client, subdevice, channel_group, channels });
        }
        if !has_descriptors {
            contexts.clear();
        }
        match fields.remaining() {
            0 => Ok(Self { pid, device_ordinal, device_uuid, contexts }),
            _ => Err(AttachError::Length { found: bytes.len(), expected }),
        }
    }
}

/// A payload with another version in its second word.
fn with_version(mut payload: Vec<u8>, version: u32) -> Vec<u8> {
    for (slot, byte) in payload.iter_mut().skip(4).zip(version.to_le_bytes()) {
        *slot = byte;
    }
    payload
}

/// A count to be written. The reader refuses one that does not fit like any count above the maximum.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Checks a count that was read.
fn limited(what: &'static str, found: u32, max: usize) -> Result<usize, AttachError> {
    let found = found as usize;
    if found <= max { Ok(found) } else { Err(AttachError::TooMany { what, found, max }) }
}
