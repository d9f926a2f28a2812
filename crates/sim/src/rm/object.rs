//! Clients and the objects in them.

use crate::engine::{Access, GroupId, Switches};
use std::collections::BTreeMap;

/// A channel group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Its number on the GPU.
    pub(super) id: u32,
    /// The engine whose runlist it is in.
    pub(super) engine: u32,
    /// As it was set last.
    pub(super) timeslice_us: u64,
    /// The context whose kernels it carries.
    pub(super) context: Option<GroupId>,
    /// Switches before the statistics were last reset.
    pub(super) forgotten: Switches,
}

/// The type of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Device,
    Subdevice,
    Group(Group),
    /// An engine on a channel; it takes no requests.
    Engine,
    /// A channel of a group, and whether DISABLE_CHANNELS has disabled it.
    Channel {
        group: u32,
        access: Access,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) parent: u32,
    /// As it was allocated.
    pub(super) class: u32,
    pub(super) kind: Kind,
}

/// A client: a root with objects below it.
#[derive(Debug, Default)]
pub(super) struct Client {
    objects: BTreeMap<u32, Object>,
    next_handle: u32,
}

/// First of the handles that the driver chooses.
const CHOSEN: u32 = 0xcaf0_0000;

impl Client {
    pub(super) fn get(&self, handle: u32) -> Option<&Object> {
        self.objects.get(&handle)
    }

    pub(super) fn get_mut(&mut self, handle: u32) -> Option<&mut Object> {
        self.objects.get_mut(&handle)
    }

    /// Adds an object and returns its handle: `wanted`, or the driver's choice if that is 0. `None` if the handle is
    /// taken.
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

    /// The contexts that end with the client.
    pub(super) fn into_groups(self) -> Vec<GroupId> {
        self.objects.values().filter_map(context_of).collect()
    }

    /// A context has ended.
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
