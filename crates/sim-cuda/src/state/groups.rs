//! A context's objects in the resource manager: channel groups for kernels and copies. They are allocated by ioctl as
//! by the real driver, so that a process that intercepts ioctls sees the same calls.

use super::ioctl::ioctl;
use super::{lock, status_of};
use sluice_driver_api::CUresult;
use sluice_nvrm::abi::{AllocBlock, ChannelParams, FreeBlock, GroupParams, Request, class, engine};
use sluice_sim::client::{ControlGroup, Gpu};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// First of the handles of the first context: the group that carries its kernels.
const FIRST: u32 = 0x5c00_0015;
/// Distance from the first handle of a context to that of the next context.
const PER_CONTEXT: u32 = 0x40;
/// Distance from the handle of a group to that of the next group of the context.
const PER_GROUP: u32 = 0x10;
/// Distance from the handle of a group to that of the engine on its first channel.
const ENGINE: u32 = PER_GROUP - 1;
const DEVICE: u32 = 0x5c00_0001;
const SUBDEVICE: u32 = 0x5c00_0002;
/// Bytes of a device's and of a subdevice's parameters.
const DEVICE_PARAMS: [u8; 56] = [0; 56];
const SUBDEVICE_PARAMS: [u8; 4] = [0; 4];

/// Engine and channels of each group of a context (`docs/reference/gpu.md` §1).
const GROUPS: [(u32, u32); 4] =
    [(engine::GR0, 8), (engine::COPY0 + 2, 4), (engine::COPY0 + 3, 4), (engine::COPY0 + 4, 4)];

/// A device's file of the control device.
#[derive(Default)]
pub(crate) struct Control(Mutex<Option<Open>>);

struct Open {
    file: OwnedFd,
    client: u32,
    contexts: u32,
}

pub(crate) struct Groups {
    client: u32,
    first: u32,
}

impl Groups {
    pub(crate) fn compute(&self) -> ControlGroup {
        ControlGroup { client: self.client, group: self.first }
    }

    fn handles(first: u32) -> impl Iterator<Item = (u32, u32, u32)> {
        GROUPS
            .into_iter()
            .zip(0..)
            .map(move |((engine, channels), index)| (first + index * PER_GROUP, engine, channels))
    }
}

impl Control {
    /// Allocates the channel groups of a new context: all of them, or none.
    pub(crate) fn open_groups(&self, gpu: &Gpu) -> Result<Groups, CUresult> {
        let mut open = lock(&self.0);
        let open = match &mut *open {
            Some(open) => open,
            closed => closed.insert(Open::new(gpu)?),
        };
        let groups = Groups { client: open.client, first: FIRST + open.contexts * PER_CONTEXT };
        open.contexts += 1;
        let mut handles = Groups::handles(groups.first);
        match handles.try_for_each(|(group, engine, channels)| open.alloc_group(group, engine, channels)) {
            Ok(()) => Ok(groups),
            Err(status) => {
                open.free(&groups);
                Err(status)
            }
        }
    }

    pub(crate) fn free(&self, groups: &Groups) {
        if let Some(open) = &*lock(&self.0) {
            open.free(groups);
        }
    }

    /// The file, if it is open, with its client and subdevice.
    #[cfg(test)]
    pub(crate) fn opened(&self) -> Option<(OwnedFd, u32, u32)> {
        let open = lock(&self.0);
        open.as_ref().and_then(|open| Some((open.file.try_clone().ok()?, open.client, SUBDEVICE)))
    }
}

impl Open {
    fn new(gpu: &Gpu) -> Result<Self, CUresult> {
        let file = gpu.open_control().map_err(status_of)?;
        let root = AllocBlock { class: class::ROOT_CLIENT, ..AllocBlock::default() };
        let client = allocate(file.as_fd(), root, &[])?;
        let open = Self { file, client, contexts: 0 };
        open.alloc(client, DEVICE, class::DEVICE, &DEVICE_PARAMS)?;
        open.alloc(DEVICE, SUBDEVICE, class::SUBDEVICE, &SUBDEVICE_PARAMS)?;
        Ok(open)
    }

    fn alloc_group(&self, group: u32, engine: u32, channels: u32) -> Result<(), CUresult> {
        self.alloc(DEVICE, group, class::CHANNEL_GROUP, &GroupParams { engine }.encode())?;
        let params = ChannelParams { entries: 1_024, engine }.encode();
        for channel in (group..).skip(1).zip(0..channels).map(|(handle, _)| handle) {
            self.alloc(group, channel, class::HOPPER_CHANNEL, &params)?;
        }
        let class = if engine == engine::GR0 { class::HOPPER_COMPUTE } else { class::HOPPER_COPY };
        self.alloc(group + 1, group + ENGINE, class, &[])
    }

    fn free(&self, groups: &Groups) {
        for (object, ..) in Groups::handles(groups.first) {
            let mut block = FreeBlock { client: groups.client, parent: DEVICE, object, status: 0 }.encode();
            // A daemon that has ended has freed them already.
            let _ = ioctl(self.file.as_fd(), Request::FREE, &mut block, None);
        }
    }

    fn alloc(&self, parent: u32, object: u32, class: u32, params: &[u8]) -> Result<(), CUresult> {
        let wanted = AllocBlock { client: self.client, parent, object, class, ..AllocBlock::default() };
        allocate(self.file.as_fd(), wanted, params).map(drop)
    }
}

/// Allocates an object and returns its handle. Clients and channels use the long block and the others the short one,
/// as with the real driver.
fn allocate(file: BorrowedFd<'_>, wanted: AllocBlock, params: &[u8]) -> Result<u32, CUresult> {
    let wanted = AllocBlock { params_len: u32::try_from(params.len()).unwrap_or(0), ..wanted };
    let mut params = params.to_vec();
    let (mut long, mut short);
    let (request, block): (_, &mut [u8]) =
        if matches!(wanted.class, class::ROOT_CLIENT | class::HOPPER_CHANNEL) {
            long = wanted.encode_with_rights();
            (Request::ALLOC_WITH_RIGHTS, &mut long)
        } else {
            short = wanted.encode();
            (Request::ALLOC, &mut short)
        };
    ioctl(file, request, block, Some(&mut params)).map_err(|_| CUresult::ERROR_DEVICE_UNAVAILABLE)?;
    match AllocBlock::decode(block) {
        Some(AllocBlock { status: 0, object, .. }) => Ok(object),
        _ => Err(CUresult::ERROR_UNKNOWN),
    }
}
