//! The bytes of the driver's ioctls, over slices.
//!
//! An ioctl carries one *block*, and the request number contains its size. Blocks of allocations and controls point at *parameters*,
//! which must have exactly the size that the driver expects. The ioctl itself succeeds; the result is the block's status word.

mod block;
mod fields;
pub mod gid;
mod params;
mod request;

pub(crate) use block::status;
pub use block::{AllocBlock, ControlBlock, FreeBlock, XferBlock};
pub use params::{
    ChannelParams, CtxswStats, DisableChannels, GroupParams, Preempt, group_id, handle_info, timeslice,
};
pub use request::{Command, MAX_BLOCK_LEN, POINTER, Request};

/// Object classes.
pub mod class {
    /// All classes of clients: NV01_ROOT and NV01_ROOT_NON_PRIV of older callers, and [`ROOT_CLIENT`].
    pub const ROOTS: [u32; 3] = [0x0, 0x1, ROOT_CLIENT];
    /// NV01_ROOT_CLIENT.
    pub const ROOT_CLIENT: u32 = 0x41;
    /// NV01_DEVICE_0.
    pub const DEVICE: u32 = 0x80;
    /// NV20_SUBDEVICE_0.
    pub const SUBDEVICE: u32 = 0x2080;
    /// KEPLER_CHANNEL_GROUP_A, the channel group of every generation since.
    pub const CHANNEL_GROUP: u32 = 0xa06c;
    /// HOPPER_CHANNEL_GPFIFO_A.
    pub const HOPPER_CHANNEL: u32 = 0xc86f;
    /// HOPPER_COMPUTE_A.
    pub const HOPPER_COMPUTE: u32 = 0xcbc0;
    /// HOPPER_DMA_COPY_A.
    pub const HOPPER_COPY: u32 = 0xc8b5;

    /// Whether a class is a channel of any GPU generation: all of them end in 0x6f.
    pub const fn is_channel(class: u32) -> bool {
        class >> 16 == 0 && class & 0xff == 0x6f
    }

    /// Whether a class is a compute engine of any GPU generation since Fermi: all of them end in 0xc0.
    pub const fn is_compute(class: u32) -> bool {
        class >> 16 == 0 && class & 0xff == 0xc0 && class >= 0x90c0
    }
}

/// NV2080_ENGINE_TYPE.
pub mod engine {
    /// The first graphics engine: compute.
    pub const GR0: u32 = 1;
    /// The first copy engine.
    pub const COPY0: u32 = 9;
}
