//! What a manager is told of a process's groups on one device: all of them, or none.
//!
//! A process of which some groups could be stopped and others not would still compute while it is thought to stand.

use std::os::fd::RawFd;

use sluice_comm::attach::{ContextHandles, MAX_CHANNELS, MAX_CONTEXTS, MAX_DESCRIPTORS};
use thiserror::Error;

use super::{Found, Registry};

/// Groups, and the descriptors through which they are controlled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Announcement {
    /// The groups' handles; their `descriptor` counts in `descriptors`.
    pub contexts: Vec<ContextHandles>,
    /// Open in the process whose groups they are, when they were last seen used.
    pub descriptors: Vec<RawFd>,
    /// Which groups they are, by [`Found::number`].
    pub numbers: Vec<u64>,
}

/// Why the groups of a device are not announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unannounced {
    /// It is not known which device a group is on.
    #[error("a channel group cannot be attributed to a device")]
    UnknownDevice,
    /// It is not known whether a group is one of compute.
    #[error("the engine of a channel group is not known")]
    UnknownEngine,
    /// No subdevice was seen through which a group could be stopped.
    #[error("no subdevice is known for a channel group")]
    NoSubdevice,
    /// More than one control takes.
    #[error("a channel group has {0} channels, one control takes {MAX_CHANNELS}")]
    Channels(usize),
    /// More than an announcement takes.
    #[error("{0} channel groups, an announcement takes {MAX_CONTEXTS}")]
    Groups(usize),
    /// More than travel with one message.
    #[error("channel groups on {0} descriptors, {MAX_DESCRIPTORS} travel with one message")]
    Descriptors(usize),
}

impl Registry {
    /// What to tell the manager of device `ordinal`; `only`: the process sees no other device.
    ///
    /// # Errors
    /// [`Unannounced`] if not all groups that are or may be on the device can be controlled.
    pub fn announcement(&self, ordinal: u32, only: bool) -> Result<Announcement, Unannounced> {
        let mut told = Announcement::default();
        for found in self.groups() {
            match found.owner.or(only.then_some(ordinal)) {
                None => return Err(Unannounced::UnknownDevice),
                Some(owner) if owner != ordinal => {}
                Some(_) => told.add(found)?,
            }
        }
        match told {
            Announcement { ref descriptors, .. } if descriptors.len() > MAX_DESCRIPTORS => {
                Err(Unannounced::Descriptors(descriptors.len()))
            }
            Announcement { ref contexts, .. } if contexts.len() > MAX_CONTEXTS => {
                Err(Unannounced::Groups(contexts.len()))
            }
            told => Ok(told),
        }
    }
}

impl Announcement {
    fn add(&mut self, found: Found) -> Result<(), Unannounced> {
        let Found { fd, mut handles, number, uncertain, .. } = found;
        if uncertain {
            return Err(Unannounced::UnknownEngine);
        }
        if handles.subdevice == 0 {
            return Err(Unannounced::NoSubdevice);
        }
        if handles.channels.len() > MAX_CHANNELS {
            return Err(Unannounced::Channels(handles.channels.len()));
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
