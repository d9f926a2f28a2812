//! What is known of the channel groups of a process: as it announces them, or as they were found.

use sluice_comm::attach::ContextHandles;

/// Groups, and the descriptors through which they are controlled. The process alone vouches for what it announces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Announcement<D> {
    /// The groups. Each names its descriptor by index.
    pub contexts: Vec<ContextHandles>,
    /// The descriptors. This crate only hands them on.
    pub descriptors: D,
}

/// Identifies an opened control descriptor, through which any number of groups may be controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlDescriptorId(pub u64);

/// Where an [`Announcement`] comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The hook of the process has sent it.
    Announced,
    /// A search has found the groups.
    Found {
        /// The command name of the process, for messages.
        command: String,
    },
    /// The driver's lock stands for all groups of the process.
    Lock {
        /// The command name of the process, for messages.
        command: String,
        /// Why the groups themselves are not controlled.
        obstacle: super::obstacle::Obstacle,
    },
}

/// What a postponed announcement waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PostponedUntil {
    /// This time.
    Time(u64),
    /// The result of the ownership check with this number.
    Proven(u64),
}

/// The driver's client and the group's handle there.
pub fn handles_of(context: &ContextHandles) -> (u32, u32) {
    (context.client, context.channel_group)
}

/// Whether controls of a group as it is announced concern the whole group as it was found. The driver refuses controls of channels that the
/// group does not have.
pub fn covers(announced: &ContextHandles, found: &ContextHandles) -> bool {
    handles_of(announced) == handles_of(found)
        && announced.subdevice == found.subdevice
        && found.channels.iter().all(|channel| announced.channels.contains(channel))
}

/// Handles that represent a process held by the driver's lock as one channel group. Client 0 exists in no driver, so they are unique.
pub fn lock_handles(pid: i32) -> ContextHandles {
    let channel_group = pid.unsigned_abs();
    ContextHandles { descriptor: 0, client: 0, subdevice: 0, channel_group, channels: Vec::new() }
}
