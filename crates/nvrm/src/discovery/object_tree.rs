//! The objects found on an open file, and the channel groups among them that are to be controlled.

use std::collections::BTreeMap;

use sluice_comm::attach::{ContextHandles, MAX_CHANNELS};

use crate::abi::class;

/// The clients of a file, and their objects that lead to channel groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ObjectTree {
    pub(super) clients: Vec<u32>,
    pub(super) objects: Objects,
}

/// (client, handle) of each object that leads to groups, with its class and parent.
pub(super) type Objects = BTreeMap<(u32, u32), (u32, u32)>;

impl ObjectTree {
    /// The groups to control: those with a compute engine on one of their channels. If no channel of a client shows a compute engine,
    /// all of its groups are controlled, because one may have it all the same.
    ///
    /// `is_on_this_gpu` decides by client and subdevice. Groups of other GPUs are left out before they can cause an error.
    ///
    /// # Errors
    /// A text that names a group that could not be disabled, and why.
    pub fn into_groups(
        self,
        mut is_on_this_gpu: impl FnMut(u32, u32) -> Result<bool, String>,
    ) -> Result<Vec<ContextHandles>, String> {
        let mut found = Vec::new();
        for client in &self.clients {
            let groups: Vec<u32> =
                self.handles_of(*client, |class, _| class == class::CHANNEL_GROUP).collect();
            let computes = |group: &&u32| self.has_compute_engine(*client, **group);
            let compute: Vec<u32> = groups.iter().filter(computes).copied().collect();
            for group in if compute.is_empty() { groups } else { compute } {
                let handles = self.context_handles(*client, group);
                // Nothing runs on a group without channels.
                if handles.channels.is_empty() {
                    continue;
                }
                if handles.subdevice == 0 {
                    return Err(format!("no subdevice leads to group {group:#x} of client {client:#x}"));
                }
                if !is_on_this_gpu(*client, handles.subdevice)? {
                    continue;
                }
                if handles.channels.len() > MAX_CHANNELS {
                    return Err(format!("group {group:#x} has more than {MAX_CHANNELS} channels"));
                }
                found.push(handles);
            }
        }
        Ok(found)
    }

    /// Handles of a client's objects that `matches` selects by class and parent.
    fn handles_of(&self, client: u32, matches: impl Fn(u32, u32) -> bool) -> impl Iterator<Item = u32> {
        let all = self.objects.range((client, 0)..=(client, u32::MAX));
        all.filter(move |(_, (class, parent))| matches(*class, *parent)).map(|((_, handle), _)| *handle)
    }

    fn channels(&self, client: u32, group: u32) -> impl Iterator<Item = u32> {
        self.handles_of(client, move |class, parent| class::is_channel(class) && parent == group)
    }

    fn has_compute_engine(&self, client: u32, group: u32) -> bool {
        let engines = |channel| {
            self.handles_of(client, move |class, parent| class::is_compute(class) && parent == channel)
        };
        self.channels(client, group).any(|channel| engines(channel).next().is_some())
    }

    fn context_handles(&self, client: u32, group: u32) -> ContextHandles {
        let device = self.objects.get(&(client, group)).map_or(0, |(_, parent)| *parent);
        let mut subdevices =
            self.handles_of(client, move |class, parent| class == class::SUBDEVICE && parent == device);
        ContextHandles {
            descriptor: 0,
            client,
            subdevice: subdevices.next().unwrap_or(0),
            channel_group: group,
            channels: self.channels(client, group).collect(),
        }
    }
}
