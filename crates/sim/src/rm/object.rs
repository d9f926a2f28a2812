//! Clients, the objects in them, and their allocation (RM_ALLOC).

use super::{Call, Rm};
use crate::engine::{Access, GroupId, Switches};
use sluice_nvrm::NvStatus;
use sluice_nvrm::abi::{AllocBlock, ChannelParams, GroupParams, class};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Its number on the GPU.
    pub(super) id: u32,
    /// The engine whose runlist it is in.
    pub(super) engine: u32,
    /// The value that was set last.
    pub(super) timeslice_us: u64,
    /// The context whose kernels it carries.
    pub(super) context: Option<GroupId>,
    /// Switches before the statistics were last reset.
    pub(super) before_reset: Switches,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A GPU.
    Device,
    /// The part of a device that executes controls.
    Subdevice,
    /// A channel group.
    Group(Group),
    /// An engine on a channel; it has no controls.
    Engine,
    /// A channel of a group, and whether DISABLE_CHANNELS has disabled it.
    Channel { group: u32, access: Access },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) parent: u32,
    /// The class of its allocation.
    pub(super) class: u32,
    pub(super) kind: Kind,
}

/// A client: a root with objects below it.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) objects: BTreeMap<u32, Object>,
    next_handle: u32,
}

/// First of the handles that the driver chooses.
const CHOSEN: u32 = 0xcaf0_0000;

impl Client {
    /// Adds an object and returns its handle: `wanted`, or the driver's choice if that is 0. `None` if the handle is
    /// in use.
    pub(super) fn add(&mut self, wanted: u32, object: Object) -> Option<u32> {
        let handle = if wanted == 0 {
            self.next_handle += 1;
            CHOSEN + self.next_handle
        } else {
            wanted
        };
        if self.objects.contains_key(&handle) {
            return None;
        }
        self.objects.insert(handle, object);
        Some(handle)
    }

    pub(super) fn group_mut(&mut self, handle: u32) -> Option<&mut Group> {
        match self.objects.get_mut(&handle).map(|object| &mut object.kind) {
            Some(Kind::Group(group)) => Some(group),
            _ => None,
        }
    }

    /// Whether the channels of a group let it run: it is disabled when all of them are.
    pub(super) fn access(&self, group: u32) -> Access {
        let channels = self.objects.values().filter_map(|object| match object.kind {
            Kind::Channel { group: of, access } if of == group => Some(access),
            _ => None,
        });
        let channels: Vec<Access> = channels.collect();
        match channels.as_slice() {
            [] => Access::Enabled,
            all if all.contains(&Access::Enabled) => Access::Enabled,
            all if all.contains(&Access::Draining) => Access::Draining,
            _ => Access::Stopped,
        }
    }

    /// Removes an object and its children. Returns the contexts that end with it, or `None` if the object does not
    /// exist.
    pub(super) fn remove(&mut self, handle: u32) -> Option<Vec<GroupId>> {
        let object = self.objects.remove(&handle)?;
        let mut gone: Vec<GroupId> = context_of(&object).into_iter().collect();
        let below: Vec<u32> =
            self.objects.iter().filter(|(_, object)| object.parent == handle).map(|(id, _)| *id).collect();
        gone.extend(below.into_iter().filter_map(|handle| self.remove(handle)).flatten());
        Some(gone)
    }

    pub(super) fn into_groups(self) -> Vec<GroupId> {
        self.objects.values().filter_map(context_of).collect()
    }

    /// Removes a context that has ended from its group.
    pub(super) fn unbind(&mut self, context: GroupId) {
        for object in self.objects.values_mut() {
            if let Kind::Group(group) = &mut object.kind
                && group.context == Some(context)
            {
                group.context = None;
            }
        }
    }
}

fn context_of(object: &Object) -> Option<GroupId> {
    match &object.kind {
        Kind::Group(group) => group.context,
        _ => None,
    }
}

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
            fields.object = self.client_numbers.next();
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
        let parent = client.objects.get(&fields.parent).map(|object| &object.kind);
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
                    before_reset: Switches::default(),
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
