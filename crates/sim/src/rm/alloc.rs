//! RM_ALLOC.

use super::object::{Client, Group, Kind, Object};
use super::{Call, Rm};
use crate::engine::{Access, Switches};
use sluice_nvrm::NvStatus;
use sluice_nvrm::abi::{AllocBlock, ChannelParams, GroupParams, class};

/// NV_ERR_INSERT_DUPLICATE_NAME.
const DUPLICATE: NvStatus = NvStatus(0x19);
/// NV_ERR_INVALID_CLASS.
const INVALID_CLASS: NvStatus = NvStatus(0x22);
/// NV_ERR_INVALID_OBJECT_PARENT.
const INVALID_PARENT: NvStatus = NvStatus(0x36);

impl Rm {
    /// Makes an object; its handle goes into the block.
    pub(super) fn alloc(&mut self, call: &Call<'_>, asked: &mut AllocBlock, params: &[u8]) -> NvStatus {
        if asked.flags & AllocBlock::SERIALISED != 0 {
            return NvStatus::NOT_SUPPORTED;
        }
        if class::ROOTS.contains(&asked.class) {
            return self.alloc_client(call, asked);
        }
        match self.alloc_object(call, asked, params) {
            Ok(handle) => {
                asked.object = handle;
                NvStatus::OK
            }
            Err(status) => status,
        }
    }

    fn alloc_client(&mut self, call: &Call<'_>, asked: &mut AllocBlock) -> NvStatus {
        if asked.object == 0 {
            self.next_client += 1;
            asked.object = self.next_client;
        }
        if self.files.values().any(|clients| clients.contains_key(&asked.object)) {
            return DUPLICATE;
        }
        let Some(clients) = self.files.get_mut(&call.file) else { return NvStatus::INVALID_CLIENT };
        clients.insert(asked.object, Client::default());
        NvStatus::OK
    }

    fn alloc_object(&mut self, call: &Call<'_>, asked: &AllocBlock, params: &[u8]) -> Result<u32, NvStatus> {
        let (next_group, timeslice_us) = (self.next_group + 1, self.timeslice_us);
        let client = self.client(call.file, asked.client)?;
        let parent = client.get(asked.parent).map(|object| &object.kind);
        let kind = match (asked.class, parent) {
            (class::DEVICE, None) if asked.parent == asked.client => Kind::Device,
            (class::SUBDEVICE, Some(Kind::Device)) => Kind::Subdevice,
            (class::CHANNEL_GROUP, Some(Kind::Device)) => {
                let params = GroupParams::decode(params).ok_or(NvStatus::INVALID_ARGUMENT)?;
                Kind::Group(Group {
                    id: next_group,
                    engine: params.engine,
                    timeslice_us,
                    context: None,
                    forgotten: Switches::default(),
                })
            }
            (class, Some(Kind::Group(group))) if class::is_channel(class) => {
                let params = ChannelParams::decode(params).ok_or(NvStatus::INVALID_ARGUMENT)?;
                if params.engine != group.engine && params.engine != 0 {
                    return Err(NvStatus::INVALID_ARGUMENT);
                }
                Kind::Channel { group: asked.parent, access: Access::Enabled }
            }
            (class::HOPPER_COMPUTE | class::HOPPER_COPY, Some(Kind::Channel { .. })) => Kind::Engine,
            (class::DEVICE | class::SUBDEVICE | class::CHANNEL_GROUP, _) => return Err(INVALID_PARENT),
            (class, _) if class::is_channel(class) => return Err(INVALID_PARENT),
            _ => return Err(INVALID_CLASS),
        };
        let is_group = matches!(kind, Kind::Group(_));
        let handle = client
            .add(asked.object, Object { parent: asked.parent, class: asked.class, kind })
            .ok_or(DUPLICATE)?;
        self.next_group += u32::from(is_group);
        Ok(handle)
    }
}
