//! What a process has told the driver to make: its channel groups, and the handles by which they can be controlled.
//!
//! [`observe`] looks at one ioctl that the driver has accepted; [`Registry`] keeps what is alive.

mod announcement;
mod groups;
mod registry;

pub use announcement::{Announcement, Unannounced};
pub use groups::Found;
pub use registry::Registry;

use crate::NvStatus;
use crate::abi::{self, AllocBlock, Command, ControlBlock, FreeBlock, GroupParams, Request, class};

/// An ioctl that concerns channel groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A client was made.
    Client {
        /// Its handle.
        client: u32,
    },
    /// An object was made.
    Object {
        /// Its client.
        client: u32,
        /// What it hangs on.
        parent: u32,
        /// Its handle.
        object: u32,
        /// What it is.
        kind: ObjectKind,
        /// Where its parameters were, if they are of interest and can be read.
        params: Option<Params>,
    },
    /// A group's time slice was set.
    Timeslice {
        /// The group's client.
        client: u32,
        /// The group.
        group: u32,
        /// Where the time was.
        params: Params,
    },
    /// An object went, or a whole client.
    Freed {
        /// Its client.
        client: u32,
        /// The object, or the client itself.
        object: u32,
    },
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A GPU as a client sees it.
    Device,
    /// A part of a device that controls are asked of.
    Subdevice,
    /// A channel group.
    Group,
    /// A channel.
    Channel,
}

/// Parameters in the caller's memory, which the driver has read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// Their address.
    pub address: u64,
    /// Their size.
    pub len: usize,
}

impl Params {
    /// The most bytes that are ever of interest.
    pub const MAX_LEN: usize = GroupParams::READ;
}

impl Seen {
    /// The parameters to be read before the [`Registry`] is told.
    #[must_use]
    pub fn params(&self) -> Option<Params> {
        match self {
            Self::Object { params, .. } => *params,
            Self::Timeslice { params, .. } => Some(*params),
            Self::Client { .. } | Self::Freed { .. } => None,
        }
    }
}

/// What an ioctl that returned 0 says; `block` is its argument as the driver left it. Nothing if the driver refused it, or if
/// it does not concern channel groups.
#[must_use]
pub fn observe(request: Request, block: &[u8]) -> Option<Seen> {
    if abi::status(request, block)? != NvStatus::OK {
        return None;
    }
    match request {
        Request::FREE => {
            FreeBlock::decode(block).map(|free| Seen::Freed { client: free.client, object: free.object })
        }
        Request::CONTROL => ControlBlock::decode(block).and_then(|control| timeslice(&control)),
        _ => AllocBlock::decode(block).and_then(|alloc| allocated(&alloc)),
    }
}

fn timeslice(control: &ControlBlock) -> Option<Seen> {
    let known = Command { number: control.command, params_len: control.params_len } == Command::SET_TIMESLICE;
    known.then_some(Seen::Timeslice {
        client: control.client,
        group: control.object,
        params: Params { address: control.params, len: 8 },
    })
}

fn allocated(alloc: &AllocBlock) -> Option<Seen> {
    let kind = match alloc.class {
        root if class::ROOTS.contains(&root) => return Some(Seen::Client { client: alloc.object }),
        class::DEVICE => ObjectKind::Device,
        class::SUBDEVICE => ObjectKind::Subdevice,
        class::CHANNEL_GROUP => ObjectKind::Group,
        channel if class::is_channel(channel) => ObjectKind::Channel,
        _ => return None,
    };
    // A size that is given is the driver's own, whatever its branch: another it refuses.
    let len = usize::try_from(alloc.params_len).ok().filter(|len| *len != 0).unwrap_or(GroupParams::LEN);
    let readable = kind == ObjectKind::Group
        && alloc.params != 0
        && alloc.flags & AllocBlock::SERIALISED == 0
        && len >= GroupParams::READ;
    Some(Seen::Object {
        client: alloc.client,
        parent: alloc.parent,
        object: alloc.object,
        kind,
        params: readable.then_some(Params { address: alloc.params, len: GroupParams::READ }),
    })
}
