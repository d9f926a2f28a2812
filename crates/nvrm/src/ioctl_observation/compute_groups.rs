//! The compute channel groups among the objects of this process, and their announcement for one device: all of them, or none.
//!
//! If only some groups of a process could be disabled, it would compute while the manager considers it stopped.

use std::fmt;
use std::os::fd::RawFd;

use sluice_comm::attach::{ContextHandles, MAX_CHANNELS, MAX_CONTEXTS, MAX_DESCRIPTORS};
use thiserror::Error;

use super::ObjectRegistry;
use super::registry::{Kind, Object};
use crate::abi::engine;

/// A compute channel group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeGroup {
    /// The descriptor that the process uses for it; it was open at the last observed ioctl.
    pub fd: RawFd,
    /// Its handles; the subdevice is 0 if none was observed.
    pub handles: ContextHandles,
    /// The ordinal of its device in this process, if it is known.
    pub device_ordinal: Option<u32>,
    /// The time slice that the process set, in microseconds.
    pub timeslice_us: Option<u64>,
    /// Its number in the registry. A later group with the same handles has another number.
    pub number: u64,
    /// Its engine could not be read, so it may not be a compute group.
    pub has_unknown_engine: bool,
}

impl ObjectRegistry {
    /// All compute channel groups that have channels, in the order in which they were made.
    pub fn groups(&self) -> Vec<ComputeGroup> {
        let mut groups = Vec::new();
        for (handle, client) in &self.clients {
            for (group, object) in &client.objects {
                let Kind::Group { engine, timeslice_us } = object.kind else { continue };
                if engine.is_some_and(|engine| engine != engine::GR0) {
                    continue;
                }
                let mut channels: Vec<_> =
                    client.children(*group, |kind| matches!(kind, Kind::Channel)).collect();
                if channels.is_empty() {
                    continue;
                }
                channels.sort_unstable();
                let subdevice = client.children(object.parent, |kind| matches!(kind, Kind::Subdevice)).min();
                let owner = match client.objects.get(&object.parent) {
                    Some(Object { kind: Kind::Device { ordinal }, .. }) => *ordinal,
                    _ => None,
                };
                let handles = ContextHandles {
                    descriptor: 0,
                    client: *handle,
                    subdevice: subdevice.map_or(0, |(_, subdevice)| subdevice),
                    channel_group: *group,
                    channels: channels.into_iter().map(|(_, channel)| channel).collect(),
                };
                groups.push(ComputeGroup {
                    fd: client.fd,
                    handles,
                    device_ordinal: owner,
                    timeslice_us,
                    number: object.number,
                    has_unknown_engine: engine.is_none(),
                });
            }
        }
        groups.sort_by_key(|found: &ComputeGroup| found.number);
        groups
    }
}

/// Every channel group with its engine and channel count, for the log.
impl fmt::Display for ObjectRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (handle, client) in &self.clients {
            for (group, object) in &client.objects {
                let Kind::Group { engine, timeslice_us } = object.kind else { continue };
                let channels = client.children(*group, |kind| matches!(kind, Kind::Channel)).count();
                write!(f, "{separator}client 0x{handle:x} group 0x{group:x} channels {channels}")?;
                for (name, value) in [("engine", engine.map(u64::from)), ("slice_us", timeslice_us)] {
                    match value {
                        Some(value) => write!(f, " {name} {value}")?,
                        None => write!(f, " {name} unknown")?,
                    }
                }
                separator = "; ";
            }
        }
        Ok(())
    }
}

/// Channel groups, and the descriptors through which they are controlled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announcement {
    /// The groups' handles; their `descriptor` is an index in `descriptors`.
    pub contexts: Vec<ContextHandles>,
    /// Descriptor numbers of this process. Each was open when an ioctl was last observed on it.
    pub descriptors: Vec<RawFd>,
    /// The groups' registry numbers ([`ComputeGroup::number`]).
    pub numbers: Vec<u64>,
}

/// Why the channel groups of a device cannot be announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AnnouncementError {
    /// The device of a group is not known.
    #[error("a channel group cannot be attributed to a device")]
    UnknownDevice,
    /// The engine of a group is not known, so it may compute.
    #[error("the engine of a channel group is not known")]
    UnknownEngine,
    /// No subdevice was observed through which a group could be disabled.
    #[error("no subdevice is known for a channel group")]
    NoSubdevice,
    /// A group has more channels than one control takes.
    #[error("a channel group has {0} channels, one control takes {MAX_CHANNELS}")]
    TooManyChannels(usize),
    /// There are more groups than an announcement takes.
    #[error("{0} channel groups, an announcement takes {MAX_CONTEXTS}")]
    TooManyGroups(usize),
    /// There are more descriptors than one message takes.
    #[error("channel groups on {0} descriptors, {MAX_DESCRIPTORS} travel with one message")]
    TooManyDescriptors(usize),
}

impl ObjectRegistry {
    /// The announcement to the manager of device `ordinal`; `only`: the process sees no other device.
    /// Errors: [`AnnouncementError`] if not all groups that are or may be on the device can be controlled.
    pub fn announcement(&self, ordinal: u32, only: bool) -> Result<Announcement, AnnouncementError> {
        let mut announcement = Announcement::default();
        for found in self.groups() {
            match found.device_ordinal.or(only.then_some(ordinal)) {
                None => return Err(AnnouncementError::UnknownDevice),
                Some(owner) if owner != ordinal => {}
                Some(_) => announcement.add(found)?,
            }
        }
        let (groups, descriptors) = (announcement.contexts.len(), announcement.descriptors.len());
        if descriptors > MAX_DESCRIPTORS {
            return Err(AnnouncementError::TooManyDescriptors(descriptors));
        }
        if groups > MAX_CONTEXTS {
            return Err(AnnouncementError::TooManyGroups(groups));
        }
        Ok(announcement)
    }
}

impl Announcement {
    fn add(&mut self, found: ComputeGroup) -> Result<(), AnnouncementError> {
        let ComputeGroup { fd, mut handles, number, has_unknown_engine, .. } = found;
        if has_unknown_engine {
            return Err(AnnouncementError::UnknownEngine);
        }
        if handles.subdevice == 0 {
            return Err(AnnouncementError::NoSubdevice);
        }
        if handles.channels.len() > MAX_CHANNELS {
            return Err(AnnouncementError::TooManyChannels(handles.channels.len()));
        }
        let known = self.descriptors.iter().position(|known| *known == fd);
        let at = known.unwrap_or_else(|| {
            self.descriptors.push(fd);
            self.descriptors.len() - 1
        });
        handles.descriptor = u32::try_from(at).unwrap_or(u32::MAX);
        self.contexts.push(handles);
        self.numbers.push(number);
        Ok(())
    }
}
