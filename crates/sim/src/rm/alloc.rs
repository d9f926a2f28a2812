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
    /// Allocates an object; its handle goes into the block.
    pub(super) fn alloc(&mut self, call: &Call<'_>, fields: &mut AllocBlock, params: &[u8]) -> NvStatus {
        if fields.flags & AllocBlock::SERIALISED != 0 {
            return NvStatus::NOT_SUPPORTED;
        }
        if class::ROOTS.contains(&fields.class) {
            return self.alloc_client(call, fields);
        }
        match self.alloc_object(call, fields, params) {
            Ok(handle) => {
                fields.object = handle;
                NvStatus::OK
            }
            Err(status) => status,
        }
    }

    fn alloc_client(&mut self, call: &Call<'_>, fields: &mut AllocBlock) -> NvStatus {
        if fields.object == 0 {
            self.next_client += 1;
            fields.object = self.next_client;
        }
        if self.files.values().any(|clients| clients.contains_key(&fields.object)) {
            return DUPLICATE;
        }
        let Some(clients) = self.files.get_mut(&call.file) else { return NvStatus::INVALID_CLIENT };
        clients.insert(fields.object, Client::default());
        NvStatus::OK
    }

    fn alloc_object(&mut self, call: &Call<'_>, fields: &AllocBlock, params: &[u8]) -> Result<u32, NvStatus> {
        let (next_group, timeslice_us) = (self.next_group + 1, self.timeslice_us);
        let client = self.client(call.file, fields.client)?;
        let parent = client.get(fields.parent).map(|object| &object.kind);
        let kind = match (fields.class, parent) {
            (class::DEVICE, None) if fields.parent == fields.client => Kind::Device,
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
                Kind::Channel { group: fields.parent, access: Access::Enabled }
            }
            (class::HOPPER_COMPUTE | class::HOPPER_COPY, Some(Kind::Channel { .. })) => Kind::Engine,
            (class::DEVICE | class::SUBDEVICE | class::CHANNEL_GROUP, _) => return Err(INVALID_PARENT),
            (class, _) if class::is_channel(class) => return Err(INVALID_PARENT),
            _ => return Err(INVALID_CLASS),
        };
        let is_group = matches!(kind, Kind::Group(_));
        let handle = client
            .add(fields.object, Object { parent: fields.parent, class: fields.class, kind })
            .ok_or(DUPLICATE)?;
        self.next_group += u32::from(is_group);
        Ok(handle)
    }
}
