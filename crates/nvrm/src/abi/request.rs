//! Request numbers.

/// The type byte of all of the driver's requests. Frame buffers use it too, so it does not identify the driver.
const TYPE: u8 = b'F';
/// The direction bits "read and write"; the driver ignores them.
const READ_WRITE: u32 = 3;

/// The bytes of a block of allocations and controls that hold the address of the parameters.
pub const POINTER: std::ops::Range<usize> = 16..24;
/// The longest block of the requests named here.
pub const MAX_BLOCK_LEN: usize = 48;

/// A decoded request number: the function, and the size of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// The function.
    pub nr: u8,
    /// Size of the block.
    pub len: u16,
}

impl Request {
    /// RM_FREE with its block (NVOS00).
    pub const FREE: Self = Self { nr: 0x29, len: 16 };
    /// RM_CONTROL with its block (NVOS54).
    pub const CONTROL: Self = Self { nr: 0x2a, len: 32 };
    /// RM_ALLOC with the short block (NVOS21).
    pub const ALLOC: Self = Self { nr: 0x2b, len: 32 };
    /// RM_ALLOC with the long block (NVOS64), which has rights and flags.
    pub const ALLOC_WITH_RIGHTS: Self = Self { nr: 0x2b, len: 48 };
    /// RM_DUP_OBJECT with its block (NVOS55).
    pub const DUP_OBJECT: Self = Self { nr: 0x34, len: 28 };
    /// RM_SHARE with its block (NVOS57).
    pub const SHARE: Self = Self { nr: 0x35, len: 24 };
    /// An indirect request: function, size and address of the block of another request.
    pub const XFER: Self = Self { nr: 211, len: 16 };

    /// Decodes a request number; `None` if its type byte is not the driver's. The kernel uses only the low 32 bits.
    #[inline]
    #[must_use]
    pub const fn of(number: u64) -> Option<Self> {
        let [nr, kind, size, size_and_direction, ..] = number.to_le_bytes();
        if kind != TYPE {
            return None;
        }
        Some(Self { nr, len: u16::from_le_bytes([size, size_and_direction & 0x3f]) })
    }

    /// Encodes the request number.
    #[must_use]
    pub const fn number(self) -> u32 {
        READ_WRITE << 30 | (self.len as u32 & 0x3fff) << 16 | (TYPE as u32) << 8 | self.nr as u32
    }

    /// Whether it is one of the requests named here.
    #[must_use]
    pub const fn is_known(self) -> bool {
        matches!(
            self,
            Self::FREE
                | Self::CONTROL
                | Self::ALLOC
                | Self::ALLOC_WITH_RIGHTS
                | Self::DUP_OBJECT
                | Self::SHARE
                | Self::XFER
        )
    }
}
