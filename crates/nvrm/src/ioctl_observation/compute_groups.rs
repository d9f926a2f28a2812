//! The compute channel groups among the objects of this process.

use std::fmt;
use std::os::fd::RawFd;

use sluice_comm::attach::ContextHandles;

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
    #[must_use]
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
                let uncertain = engine.is_none();
                groups.push(ComputeGroup {
                    fd: client.fd,
                    handles,
                    device_ordinal: owner,
                    timeslice_us,
                    number: object.number,
                    has_unknown_engine: uncertain,
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
