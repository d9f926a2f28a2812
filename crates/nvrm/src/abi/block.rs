//! Blocks: the structures that an ioctl's argument points at.

use super::fields::{get32, get64, layout, put32, put64};
use super::request::Request;
use crate::NvStatus;

/// Argument of RM_ALLOC, which makes an object: NVOS21, or NVOS64 with rights and flags. Their first 24 bytes are the same; then NVOS64
/// has the address of the rights, and NVOS21 the size of the parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AllocBlock {
    /// Client; 0 when the object is one.
    pub client: u32,
    /// Parent of the new object.
    pub parent: u32,
    /// Handle of the new object: chosen by the caller, or by the driver if 0.
    pub object: u32,
    /// Class of the new object.
    pub class: u32,
    /// Address of the parameters.
    pub params: u64,
    /// Size of the parameters; 0: the driver derives it from the class.
    pub params_len: u32,
    /// Long block only; bit 0: the parameters are serialised.
    pub flags: u32,
    /// The result.
    pub status: u32,
}

impl AllocBlock {
    /// The long block's flag for serialised parameters.
    pub const SERIALISED: u32 = 1;

    /// Decodes a block of either size.
    pub fn decode(block: &[u8]) -> Option<Self> {
        let (params_len, flags, status) = match u16::try_from(block.len()).ok()? {
            len if len == Request::ALLOC.len => (get32(block, 24)?, 0, get32(block, 28)?),
            len if len == Request::ALLOC_WITH_RIGHTS.len => {
                (get32(block, 32)?, get32(block, 36)?, get32(block, 40)?)
            }
            _ => return None,
        };
        Some(Self {
            client: get32(block, 0)?,
            parent: get32(block, 4)?,
            object: get32(block, 8)?,
            class: get32(block, 12)?,
            params: get64(block, 16)?,
            params_len,
            flags,
            status,
        })
    }

    /// Encodes the short block.
    pub fn encode(&self) -> [u8; 32] {
        let mut block = [0; 32];
        self.put_common(&mut block);
        put32(&mut block, 24, self.params_len);
        put32(&mut block, 28, self.status);
        block
    }

    /// Encodes the long block, without rights.
    pub fn encode_with_rights(&self) -> [u8; 48] {
        let mut block = [0; 48];
        self.put_common(&mut block);
        put32(&mut block, 32, self.params_len);
        put32(&mut block, 36, self.flags);
        put32(&mut block, 40, self.status);
        block
    }

    fn put_common(&self, block: &mut [u8]) {
        for (at, word) in [(0, self.client), (4, self.parent), (8, self.object), (12, self.class)] {
            put32(block, at, word);
        }
        put64(block, 16, self.params);
    }
}

/// Argument of RM_CONTROL (NVOS54), which makes a control on an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ControlBlock {
    /// Client.
    pub client: u32,
    /// The object.
    pub object: u32,
    /// Number of the control ([`super::Command`]).
    pub command: u32,
    /// 0 from user space.
    pub flags: u32,
    /// Address of the parameters.
    pub params: u64,
    /// Exact size of the parameters.
    pub params_len: u32,
    /// The result.
    pub status: u32,
}

layout!(ControlBlock, 32, {
    client: u32 = 0, object: u32 = 4, command: u32 = 8, flags: u32 = 12,
    params: u64 = 16, params_len: u32 = 24, status: u32 = 28,
});

/// Argument of RM_FREE (NVOS00), which frees an object and its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FreeBlock {
    /// Client.
    pub client: u32,
    /// The object's parent; the driver does not need it.
    pub parent: u32,
    /// The object; the client's own handle frees the client.
    pub object: u32,
    /// The result.
    pub status: u32,
}

layout!(FreeBlock, 16, { client: u32 = 0, parent: u32 = 4, object: u32 = 8, status: u32 = 12 });

/// Argument of the indirect request [`Request::XFER`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XferBlock {
    /// The function.
    pub nr: u32,
    /// Size of its block, at most 16 KiB.
    pub len: u32,
    /// Address of its block, where the driver writes the result.
    pub block: u64,
}

layout!(XferBlock, 16, { nr: u32 = 0, len: u32 = 4, block: u64 = 8 });

impl XferBlock {
    /// The request that it names, if the numbers are in range.
    pub fn request(&self) -> Option<Request> {
        Some(Request { nr: u8::try_from(self.nr).ok()?, len: u16::try_from(self.len).ok()? })
    }
}

/// The status word of a block.
pub(crate) fn status(request: Request, block: &[u8]) -> Option<NvStatus> {
    let word = match request {
        Request::FREE => FreeBlock::decode(block)?.status,
        Request::CONTROL => ControlBlock::decode(block)?.status,
        Request::ALLOC | Request::ALLOC_WITH_RIGHTS => AllocBlock::decode(block)?.status,
        _ => return None,
    };
    Some(NvStatus(word))
}
