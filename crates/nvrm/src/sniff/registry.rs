//! The objects of this process that lead to its channel groups.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use super::{ObjectKind, Seen};
use crate::abi::{GroupParams, timeslice};

/// Clients, devices, subdevices, channel groups and channels that are alive.
///
/// Numbers its entries: an object that goes is told apart from another that has since been made under its handle.
#[derive(Debug, Default)]
pub struct Registry {
    pub(super) clients: BTreeMap<u32, Client>,
    changes: u64,
}

#[derive(Debug)]
pub(super) struct Client {
    /// The descriptor that the driver last accepted for it.
    pub(super) fd: RawFd,
    born: u64,
    pub(super) objects: BTreeMap<u32, Object>,
}

#[derive(Debug)]
pub(super) struct Object {
    pub(super) parent: u32,
    /// Its number among all entries.
    pub(super) born: u64,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Device { ordinal: Option<u32> },
    Subdevice,
    Group { engine: Option<u32>, timeslice_us: Option<u64> },
    Channel,
}

impl Registry {
    /// Nothing seen yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { clients: BTreeMap::new(), changes: 0 }
    }

    /// How many entries there have been. What is freed later than this was asked carries a number up to it.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes in what was seen on descriptor `fd`. `params` are the bytes at [`Seen::params`]; `ordinal` the device for which
    /// the calling thread is making a context; `before` is [`Self::changes`] from before the ioctl.
    ///
    /// `true` if what [`Self::groups`] answers may have changed.
    pub fn note(&mut self, seen: &Seen, params: &[u8], fd: RawFd, ordinal: Option<u32>, before: u64) -> bool {
        match *seen {
            Seen::Client { client } => {
                self.changes += 1;
                let fresh = Client { fd, born: self.changes, objects: BTreeMap::new() };
                self.clients.insert(client, fresh).is_some()
            }
            Seen::Object { client, parent, object, kind, .. } => {
                self.add(fd, client, object, parent, kind, params, ordinal)
            }
            Seen::Timeslice { client, group, .. } => {
                let found = self.clients.get_mut(&client).and_then(|client| client.objects.get_mut(&group));
                if let Some(Object { kind: Kind::Group { timeslice_us, .. }, .. }) = found {
                    *timeslice_us = timeslice::decode(params);
                }
                false
            }
            Seen::Freed { client, object } => self.free(client, object, before),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one observation")]
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
        let born = self.changes;
        // A client that was made before this library was loaded is known by its objects only.
        let fresh = || Client { fd, born, objects: BTreeMap::new() };
        let client = self.clients.entry(client).or_insert_with(fresh);
        client.fd = fd;
        // What had this handle has gone without our seeing it.
        let replaced = client.remove(object, born);
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
            // A channel without a group cannot be stopped by one.
            ObjectKind::Channel => return replaced,
        };
        client.objects.insert(object, Object { parent, born, kind });
        true
    }

    fn free(&mut self, client: u32, object: u32, before: u64) -> bool {
        if client == object {
            let gone = self.clients.get(&client).is_some_and(|client| client.born <= before);
            return gone && self.clients.remove(&client).is_some();
        }
        self.clients.get_mut(&client).is_some_and(|client| client.remove(object, before))
    }
}

impl Client {
    fn is_group(&self, object: u32) -> bool {
        matches!(self.objects.get(&object), Some(Object { kind: Kind::Group { .. }, .. }))
    }

    /// (when it was made, its handle) of all objects of a kind that hang on `parent`.
    pub(super) fn children(
        &self,
        parent: u32,
        is: impl Fn(&Kind) -> bool,
    ) -> impl Iterator<Item = (u64, u32)> {
        let children =
            self.objects.iter().filter(move |(_, object)| object.parent == parent && is(&object.kind));
        children.map(|(handle, object)| (object.born, *handle))
    }

    /// Takes out what was made under this handle up to `before`, with all that hangs on it.
    fn remove(&mut self, object: u32, before: u64) -> bool {
        if self.objects.get(&object).is_none_or(|object| object.born > before) {
            return false;
        }
        let mut gone = vec![object];
        while let Some(object) = gone.pop() {
            self.objects.remove(&object);
            gone.extend(self.children(object, |_| true).map(|(_, child)| child));
        }
        true
    }
}
