//! Client names: short, printable and inline, so that a frame can be built without allocating.
//!
//! A name ends up in logs, metric labels and whitespace-separated resource files. Graphic ASCII (0x21 to 0x7e) is
//! all that Gemini's `namespace/podname` and host names need, so nothing else is accepted: no space, no control
//! character, no byte above 0x7e.

use std::fmt;
use thiserror::Error;

/// The longest prefix of the original that [`Name::shortened`] keeps: 47 bytes less a dash and 16 hex digits.
const KEPT: usize = Name::SHORT - 17;

/// A client's name: 1 to 63 bytes of graphic ASCII.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    bytes: [u8; Name::MAX],
    len: u8,
}

/// The reason why bytes are not a client's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameError {
    /// No bytes at all.
    #[error("client name is empty, expected 1 to {max} bytes", max = Name::MAX)]
    Empty,
    /// More bytes than any frame can carry.
    #[error("client name has {0} bytes, expected 1 to {max}", max = Name::MAX)]
    TooLong(u64),
    /// A byte that would break logs or resource files.
    #[error("client name has byte 0x{byte:02x} at offset {at}, expected graphic ASCII (0x21 to 0x7e)")]
    NotPrintable {
        /// Offset in the name.
        at: usize,
        /// The byte found there.
        byte: u8,
    },
}

impl Name {
    /// The most bytes of a name: the room in the request with the smallest payload.
    pub const MAX: usize = 63;
    /// The most bytes that fit into *every* request type.
    pub const SHORT: usize = 47;

    /// Checks and copies a name.
    /// Errors: [`NameError`] names the broken rule and its place.
    pub fn new(name: &str) -> Result<Self, NameError> {
        Self::from_bytes(name.as_bytes())
    }

    /// [`Name::new`] for bytes from the wire.
    /// Errors: as [`Name::new`].
    pub fn from_bytes(name: &[u8]) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let mut bytes = [0; Self::MAX];
        let (Some(room), Ok(len)) = (bytes.get_mut(..name.len()), u8::try_from(name.len())) else {
            return Err(NameError::TooLong(name.len() as u64));
        };
        if let Some(at) = name.iter().position(|byte| !byte.is_ascii_graphic()) {
            return Err(NameError::NotPrintable { at, byte: name[at] });
        }
        room.copy_from_slice(name);
        Ok(Self { bytes, len })
    }

    /// A name of at most 47 bytes for any string, the same on every machine: the string itself where it is a short
    /// name already, else its beginning (other bytes than graphic ASCII replaced by `_`), a dash and a hash of all of it.
    ///
    /// The hash (64-bit FNV-1a) distinguishes names without proving anything. The identity of a peer comes from its
    /// credentials, never from its name.
    pub fn shortened(name: &str) -> Self {
        if let Some(short) = Self::new(name).ok().filter(|name| name.len() <= Self::SHORT) {
            return short;
        }
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut bytes = [0; Self::MAX];
        let mut len = 0_u8;
        let prefix = name.bytes().take(KEPT).map(|byte| if byte.is_ascii_graphic() { byte } else { b'_' });
        let digits = hash.to_be_bytes().into_iter().flat_map(|byte| [hex(byte >> 4), hex(byte & 15)]);
        for (slot, byte) in bytes.iter_mut().zip(prefix.chain([b'-']).chain(digits)) {
            *slot = byte;
            len += 1;
        }
        Self { bytes, len }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        // Every constructor accepts only ASCII, so the fallback is never taken.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The name as bytes, without a terminator.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len()).unwrap_or_default()
    }

    /// Number of bytes, 1 to 63.
    #[expect(clippy::len_without_is_empty, reason = "a name is never empty")]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name)
    }
}

/// The hexadecimal digit of 0 to 15.
fn hex(digit: u8) -> u8 {
    if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
}
