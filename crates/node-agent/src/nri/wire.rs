//! The bytes of an NRI connection: ttrpc messages in the frames of NRI's multiplexer. Pure.
//!
//! ```text
//! frame:    connection (4 bytes) | length (4) | bytes of that connection
//! message:  length (4 bytes) | stream (4) | kind (1) | flags (1) | payload
//! ```
//!
//! All numbers are big-endian. Sources: `pkg/net/multiplex` of containerd/nri v0.11.0, and PROTOCOL.md of containerd/ttrpc v1.2.7.
//! A frame may end within a message.

/// Longest payload of a message that ttrpc allows, bytes.
const LONGEST_PAYLOAD: usize = 4 << 20;
const MESSAGE_HEADER: usize = 10;
const FRAME_HEADER: usize = 8;
/// Longest frame that is written. Go's reader has a buffer of this size; it loses the connection at a longer frame.
const WRITTEN_FRAME: usize = 4096;

/// The two connections in the multiplexed stream, named by the side that serves its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connection {
    /// The runtime calls the plugin.
    Plugin = 1,
    /// The plugin calls the runtime.
    Runtime = 2,
}

/// Kind of a message. Others belong to calls with streams, which NRI does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request = 1,
    Response = 2,
}

/// One ttrpc message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) connection: Connection,
    /// Number of the call on its connection.
    pub(super) stream: u32,
    pub(super) kind: Kind,
    pub(super) payload: Vec<u8>,
}

/// Why the bytes are no NRI connection.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("a frame of {0} bytes, expected at most {max}", max = LONGEST_PAYLOAD + MESSAGE_HEADER)]
    LongFrame(usize),
    #[error("a message of {0} bytes, expected at most {LONGEST_PAYLOAD}")]
    LongMessage(usize),
    #[error("a message of kind {0}, expected 1 (request) or 2 (response)")]
    UnknownKind(u8),
}

impl Message {
    /// The message in frames.
    pub(super) fn encode(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        let mut message = Vec::with_capacity(MESSAGE_HEADER + self.payload.len());
        message.extend(length.to_be_bytes());
        message.extend(self.stream.to_be_bytes());
        message.extend([self.kind as u8, 0]);
        message.extend(&self.payload);
        let mut frames = Vec::with_capacity(message.len() + FRAME_HEADER);
        for part in message.chunks(WRITTEN_FRAME) {
            frames.extend((self.connection as u32).to_be_bytes());
            frames.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            frames.extend(part);
        }
        frames
    }
}

/// Collects bytes until they are complete messages.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    frames: Vec<u8>,
    plugin: Vec<u8>,
    runtime: Vec<u8>,
}

impl Decoder {
    /// Takes the next bytes of the stream. Returns the messages that they complete, those of one connection in their order.
    ///
    /// # Errors
    /// The bytes follow no NRI. The stream cannot be read any further.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Message>, WireError> {
        self.frames.extend(bytes);
        while let Some((connection, part)) = take_frame(&mut self.frames)? {
            match connection {
                1 => self.plugin.extend(part),
                2 => self.runtime.extend(part),
                // As the multiplexer does, which has other connections in reserve.
                _ => {}
            }
        }
        let mut messages = Vec::new();
        for (connection, bytes) in
            [(Connection::Plugin, &mut self.plugin), (Connection::Runtime, &mut self.runtime)]
        {
            while let Some(message) = take_message(connection, bytes)? {
                messages.push(message);
            }
        }
        Ok(messages)
    }
}

/// Removes the first frame; `None` while it is incomplete.
fn take_frame(bytes: &mut Vec<u8>) -> Result<Option<(u32, Vec<u8>)>, WireError> {
    let Some((header, _)) = bytes.split_first_chunk::<FRAME_HEADER>() else { return Ok(None) };
    let [a, b, c, d, e, f, g, h] = *header;
    let (connection, length) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]) as usize);
    if length > LONGEST_PAYLOAD + MESSAGE_HEADER {
        return Err(WireError::LongFrame(length));
    }
    Ok(take(bytes, FRAME_HEADER, length).map(|part| (connection, part)))
}

/// Removes the first message; `None` while it is incomplete.
fn take_message(connection: Connection, bytes: &mut Vec<u8>) -> Result<Option<Message>, WireError> {
    let Some((header, _)) = bytes.split_first_chunk::<MESSAGE_HEADER>() else { return Ok(None) };
    let [a, b, c, d, e, f, g, h, kind, _flags] = *header;
    let (length, stream) = (u32::from_be_bytes([a, b, c, d]) as usize, u32::from_be_bytes([e, f, g, h]));
    if length > LONGEST_PAYLOAD {
        return Err(WireError::LongMessage(length));
    }
    let kind = match kind {
        1 => Kind::Request,
        2 => Kind::Response,
        other => return Err(WireError::UnknownKind(other)),
    };
    Ok(take(bytes, MESSAGE_HEADER, length).map(|payload| Message { connection, stream, kind, payload }))
}

/// Removes header and body. Returns the body; `None` while it is incomplete.
fn take(bytes: &mut Vec<u8>, header: usize, length: usize) -> Option<Vec<u8>> {
    if bytes.len() < header + length {
        return None;
    }
    let rest = bytes.split_off(header + length);
    let mut first = std::mem::replace(bytes, rest);
    Some(first.split_off(header))
}

#[cfg(test)]
mod tests;
