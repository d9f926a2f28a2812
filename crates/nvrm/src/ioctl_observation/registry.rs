//! The registry of this process's driver objects that lead to its channel groups.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use super::{ObjectKind, ObservedIoctl};
use crate::abi::{GroupParams, timeslice};

/// Living clients, devices, subdevices, channel groups and channels.
///
/// Every entry has a number. It distinguishes an object from a later one with the same handle.
#[derive(Debug, Default)]
pub struct ObjectRegistry {
    pub(super) clients: BTreeMap<u32, Client>,
    changes: u64,
}

#[derive(Debug)]
pub(super) struct Client {
    /// The descriptor of the last accepted ioctl of this client.
    pub(super) fd: RawFd,
    number: u64,
    pub(super) objects: BTreeMap<u32, Object>,
}

#[derive(Debug)]
pub(super) struct Object {
    pub(super) parent: u32,
    pub(super) number: u64,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Device { ordinal: Option<u32> },
    Subdevice,
    Group { engine: Option<u32>, timeslice_us: Option<u64> },
    Channel,
}

impl ObjectRegistry {
    /// An empty registry.
    pub const fn new() -> Self {
        Self { clients: BTreeMap::new(), changes: 0 }
    }

    /// The number of the newest entry. A free that begins after this call can only free entries up to this number.
    pub fn newest_entry(&self) -> u64 {
        self.changes
    }

    /// Records an ioctl observed on descriptor `fd`. `params` are the bytes at [`ObservedIoctl::params`]; `ordinal` is the device for which the
    /// calling thread is making a context; `before` is [`Self::newest_entry`] from before the ioctl.
    ///
    /// Returns whether the result of [`Self::groups`] may have changed.
    pub fn record(
        &mut self,
        seen: &ObservedIoctl,
        params: &[u8],
        fd: RawFd,
        ordinal: Option<u32>,
        before: u64,
    ) -> bool {
        match *seen {
            ObservedIoctl::Client { client } => {
                self.changes += 1;
                let new = Client { fd, number: self.changes, objects: BTreeMap::new() };
                self.clients.insert(client, new).is_some()
            }
            ObservedIoctl::Object { client, parent, object, kind, .. } => {
                self.add(fd, client, object, parent, kind, params, ordinal)
            }
            ObservedIoctl::Timeslice { client, group, .. } => {
                let found = self.clients.get_mut(&client).and_then(|client| client.objects.get_mut(&group));
                if let Some(Object { kind: Kind::Group { timeslice_us, .. }, .. }) = found {
                    *timeslice_us = timeslice::decode(params);
                }
                false
            }
            ObservedIoctl::Freed { client, object } => self.free(client, object, before),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one observed ioctl")]
    fn add(
        &mut self,
        fd: RawFd,
        client: u32,
        object: u32,
        parent: u32,
        kind: ObjectKind,
        params: &[u8],
        ordinal: Option<u32>,
    ) -> bool {
        self.changes += 1;
        let number = self.changes;
        // A client made before this library was loaded is known only by its objects.
        let new = || Client { fd, number, objects: BTreeMap::new() };
        let client = self.clients.entry(client).or_insert_with(new);
        client.fd = fd;
        // An earlier object with this handle was freed unobserved.
        let replaced = client.remove(object, number);
        let kind = match kind {
            ObjectKind::Device => Kind::Device { ordinal: None },
            ObjectKind::Subdevice => Kind::Subdevice,
            ObjectKind::Group => {
                if let Some(Object { kind: Kind::Device { ordinal: known }, .. }) =
                    client.objects.get_mut(&parent)
                    && ordinal.is_some()
                {
                    *known = ordinal;
                }
                Kind::Group {
                    engine: GroupParams::read(params).map(|params| params.engine),
                    timeslice_us: None,
                }
            }
            ObjectKind::Channel if client.is_group(parent) => Kind::Channel,
            // A channel outside any group is not controlled.
            ObjectKind::Channel => return replaced,
        };
        client.objects.insert(object, Object { parent, number, kind });
        true
    }

    fn free(&mut self, client: u32, object: u32, before: u64) -> bool {
        if client == object {
            let is_freed = self.clients.get(&client).is_some_and(|client| client.number <= before);
            return is_freed && self.clients.remove(&client).is_some();
        }
        self.clients.get_mut(&client).is_some_and(|client| client.remove(object, before))
    }
}

impl Client {
    fn is_group(&self, object: u32) -> bool {
        matches!(self.objects.get(&object), Some(Object { kind: Kind::Group { .. }, .. }))
    }

    /// (number, handle) of all children of `parent` of the kinds for which `is` returns true.
    pub(super) fn children(
        &self,
        parent: u32,
        is: impl Fn(&Kind) -> bool,
    ) -> impl Iterator<Item = (u64, u32)> {
        let children =
            self.objects.iter().filter(move |(_, object)| object.parent == parent && is(&object.kind));
        children.map(|(handle, object)| (object.number, *handle))
    }

    /// Removes the object with this handle and its descendants, unless its number is above `before`.
    fn remove(&mut self, object: u32, before: u64) -> bool {
        if self.objects.get(&object).is_none_or(|object| object.number > before) {
            return false;
        }
        let mut removed = vec![object];
        while let Some(object) = removed.pop() {
            self.objects.remove(&object);
            removed.extend(self.children(object, |_| true).map(|(_, child)| child));
        }
        true
    }
}
