//! The announcement of a process's channel groups on one device: all of them, or none.
//!
//! If only some groups of a process could be disabled, it would compute while the manager considers it stopped.

use std::os::fd::RawFd;

use sluice_comm::attach::{ContextHandles, MAX_CHANNELS, MAX_CONTEXTS, MAX_DESCRIPTORS};
use thiserror::Error;

use super::{ComputeGroup, ObjectRegistry};

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
    ///
    /// # Errors
    /// [`AnnouncementError`] if not all groups that are or may be on the device can be controlled.
    pub fn announcement(&self, ordinal: u32, only: bool) -> Result<Announcement, AnnouncementError> {
        let mut announcement = Announcement::default();
        for found in self.groups() {
            match found.device_ordinal.or(only.then_some(ordinal)) {
                None => return Err(AnnouncementError::UnknownDevice),
                Some(owner) if owner != ordinal => {}
                Some(_) => announcement.add(found)?,
            }
        }
        match announcement {
            Announcement { ref descriptors, .. } if descriptors.len() > MAX_DESCRIPTORS => {
                Err(AnnouncementError::TooManyDescriptors(descriptors.len()))
            }
            Announcement { ref contexts, .. } if contexts.len() > MAX_CONTEXTS => {
                Err(AnnouncementError::TooManyGroups(contexts.len()))
            }
            announcement => Ok(announcement),
        }
    }
}

impl Announcement {
    fn add(&mut self, found: ComputeGroup) -> Result<(), AnnouncementError> {
        let ComputeGroup { fd, mut handles, number, has_unknown_engine: uncertain, .. } = found;
        if uncertain {
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
