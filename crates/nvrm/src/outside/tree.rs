//! What was found on an open file, and which channel groups are to be controlled.

use std::collections::BTreeMap;

use sluice_comm::attach::{ContextHandles, MAX_CHANNELS};

use crate::abi::class;

/// Clients of a file, and the objects that lead to channel groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tree {
    pub(super) clients: Vec<u32>,
    pub(super) objects: Objects,
}

/// (client, handle) of each object that leads to groups, its class and what it hangs on.
pub(super) type Objects = BTreeMap<(u32, u32), (u32, u32)>;

impl Tree {
    /// The groups to control: those with a compute engine on one of their channels. A client that shows none on any channel
    /// may have one all the same, so then all its groups are. Those that `is_ours` denies by client and subdevice, for they are on
    /// another GPU, are left out before anything is held against them.
    ///
    /// # Errors
    /// Says which group could not be stopped, and why.
    pub fn into_groups(
        self,
        mut is_ours: impl FnMut(u32, u32) -> Result<bool, String>,
    ) -> Result<Vec<ContextHandles>, String> {
        let mut found = Vec::new();
        for client in &self.clients {
            let groups: Vec<u32> = self.of(*client, |class, _| class == class::CHANNEL_GROUP).collect();
            let computes = |group: &&u32| self.computes(*client, **group);
            let compute: Vec<u32> = groups.iter().filter(computes).copied().collect();
            for group in if compute.is_empty() { groups } else { compute } {
                let handles = self.handles(*client, group);
                // Nothing runs on a group without channels.
                if handles.channels.is_empty() {
                    continue;
                }
                if handles.subdevice == 0 {
                    return Err(format!("no subdevice leads to group {group:#x} of client {client:#x}"));
                }
                if !is_ours(*client, handles.subdevice)? {
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

    /// Handles of a client's objects of some kind, by class and parent.
    fn of(&self, client: u32, is: impl Fn(u32, u32) -> bool) -> impl Iterator<Item = u32> {
        let all = self.objects.range((client, 0)..=(client, u32::MAX));
        all.filter(move |(_, (class, parent))| is(*class, *parent)).map(|((_, handle), _)| *handle)
    }

    fn channels(&self, client: u32, group: u32) -> impl Iterator<Item = u32> {
        self.of(client, move |class, parent| class::is_channel(class) && parent == group)
    }

    fn computes(&self, client: u32, group: u32) -> bool {
        let on =
            |channel| self.of(client, move |class, parent| class::is_compute(class) && parent == channel);
        self.channels(client, group).any(|channel| on(channel).next().is_some())
    }

    fn handles(&self, client: u32, group: u32) -> ContextHandles {
        let device = self.objects.get(&(client, group)).map_or(0, |(_, parent)| *parent);
        let mut below = self.of(client, move |class, parent| class == class::SUBDEVICE && parent == device);
        ContextHandles {
            descriptor: 0,
            client,
            subdevice: below.next().unwrap_or(0),
            channel_group: group,
            channels: self.channels(client, group).collect(),
        }
    }
}
