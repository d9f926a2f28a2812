//! The driver's status inside a block whose ioctl succeeded.

use std::fmt;

/// NV_STATUS: 0 for success, otherwise an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NvStatus(pub u32);

impl NvStatus {
    /// Success.
    pub const OK: Self = Self(0);
    /// The caller lacks a capability.
    pub const INSUFFICIENT_PERMISSIONS: Self = Self(0x1b);
    /// A size or a value that the driver does not accept.
    pub const INVALID_ARGUMENT: Self = Self(0x1f);
    /// No such client on this open file.
    pub const INVALID_CLIENT: Self = Self(0x23);
    /// The handle names no object of the client.
    pub const INVALID_OBJECT_HANDLE: Self = Self(0x33);
    /// Not possible in this state.
    pub const INVALID_STATE: Self = Self(0x40);
    /// Not supported by this GPU or driver.
    pub const NOT_SUPPORTED: Self = Self(0x56);
    /// No object with that name.
    pub const OBJECT_NOT_FOUND: Self = Self(0x57);
    /// The GPU did not answer in time.
    pub const TIMEOUT: Self = Self(0x65);

    /// Whether the status means that the object or its client no longer exists.
    pub fn is_gone(self) -> bool {
        matches!(self, Self::INVALID_CLIENT | Self::INVALID_OBJECT_HANDLE | Self::OBJECT_NOT_FOUND)
    }

    fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::OK => "ok",
            Self::INSUFFICIENT_PERMISSIONS => "insufficient permissions",
            Self::INVALID_ARGUMENT => "invalid argument",
            Self::INVALID_CLIENT => "invalid client",
            Self::INVALID_OBJECT_HANDLE => "invalid object handle",
            Self::INVALID_STATE => "invalid state",
            Self::NOT_SUPPORTED => "not supported",
            Self::OBJECT_NOT_FOUND => "object not found",
            Self::TIMEOUT => "timeout",
            _ => return None,
        })
    }
}

impl fmt::Display for NvStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "0x{:x} ({name})", self.0),
            None => write!(f, "0x{:x}", self.0),
        }
    }
}
