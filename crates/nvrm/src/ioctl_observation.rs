//! Observation of this process's own ioctls: which channel groups it allocates, and the handles by which they are controlled.
//!
//! [`observe`] decodes one ioctl that the driver has accepted. [`ObjectRegistry`] keeps the objects that are alive.
//! [`ObjectRegistry::announcement`] is what the hook sends to a manager.

mod compute_groups;
mod registry;

pub use compute_groups::{Announcement, AnnouncementError, ComputeGroup};
pub use registry::ObjectRegistry;

use crate::NvStatus;
use crate::abi::{self, AllocBlock, Command, ControlBlock, FreeBlock, GroupParams, Request, class};

/// An accepted ioctl that concerns channel groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedIoctl {
    /// A client was made.
    Client {
        /// Its handle.
        client: u32,
    },
    /// An object was made.
    Object {
        /// Its client.
        client: u32,
        /// Its parent.
        parent: u32,
        /// Its handle.
        object: u32,
        /// Its kind.
        kind: ObjectKind,
        /// Its parameters, if they are needed and can be read.
        params: Option<Params>,
    },
    /// A group's time slice was set.
    Timeslice {
        /// The group's client.
        client: u32,
        /// The group.
        group: u32,
        /// The parameters with the time.
        params: Params,
    },
    /// An object or a whole client was freed.
    Freed {
        /// Its client.
        client: u32,
        /// The object, or the client itself.
        object: u32,
    },
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A GPU as a client sees it.
    Device,
    /// The object below a device to which controls are addressed.
    Subdevice,
    /// A channel group.
    Group,
    /// A channel.
    Channel,
}

/// Parameters in the caller's memory, which the driver has read or written during the ioctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// Their address.
    pub address: u64,
    /// Their size.
    pub len: usize,
}

impl Params {
    /// The most bytes that are ever needed.
    pub const MAX_LEN: usize = GroupParams::READ;
}

impl ObservedIoctl {
    /// The parameters that the caller reads before it calls [`ObjectRegistry::record`].
    pub fn params(&self) -> Option<Params> {
        match self {
            Self::Object { params, .. } => *params,
            Self::Timeslice { params, .. } => Some(*params),
            Self::Client { .. } | Self::Freed { .. } => None,
        }
    }
}

/// Decodes an ioctl that returned 0; `block` is its argument after the call. `None` if the driver refused it, or if it does not
/// concern channel groups.
pub fn observe(request: Request, block: &[u8]) -> Option<ObservedIoctl> {
    if abi::status(request, block)? != NvStatus::OK {
        return None;
    }
    match request {
        Request::FREE => FreeBlock::decode(block)
            .map(|free| ObservedIoctl::Freed { client: free.client, object: free.object }),
        Request::CONTROL => ControlBlock::decode(block).and_then(|control| timeslice(&control)),
        _ => AllocBlock::decode(block).and_then(|alloc| allocated(&alloc)),
    }
}

fn timeslice(control: &ControlBlock) -> Option<ObservedIoctl> {
    let known = Command { number: control.command, params_len: control.params_len } == Command::SET_TIMESLICE;
    known.then_some(ObservedIoctl::Timeslice {
        client: control.client,
        group: control.object,
        params: Params { address: control.params, len: 8 },
    })
}

fn allocated(alloc: &AllocBlock) -> Option<ObservedIoctl> {
    let kind = match alloc.class {
        root if class::ROOTS.contains(&root) => return Some(ObservedIoctl::Client { client: alloc.object }),
        class::DEVICE => ObjectKind::Device,
        class::SUBDEVICE => ObjectKind::Subdevice,
        class::CHANNEL_GROUP => ObjectKind::Group,
        channel if class::is_channel(channel) => ObjectKind::Channel,
        _ => return None,
    };
    // A size other than 0 is the size of the loaded driver's branch, because the driver refuses every other size.
    let len = usize::try_from(alloc.params_len).ok().filter(|len| *len != 0).unwrap_or(GroupParams::LEN);
    let readable = kind == ObjectKind::Group
        && alloc.params != 0
        && alloc.flags & AllocBlock::SERIALISED == 0
        && len >= GroupParams::READ;
    Some(ObservedIoctl::Object {
        client: alloc.client,
        parent: alloc.parent,
        object: alloc.object,
        kind,
        params: readable.then_some(Params { address: alloc.params, len: GroupParams::READ }),
    })
}
