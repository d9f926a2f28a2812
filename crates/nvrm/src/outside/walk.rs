//! What hangs on the clients of an open file, by asking for one handle after the other.
//!
//! The driver has no question "which handles are there" that it answers in full. But libcuda numbers its objects one by one from its
//! start, and a wrong handle is answered in a microsecond.

use std::collections::BTreeMap;

use sluice_comm::attach::{ContextHandles, MAX_CHANNELS};

use thiserror::Error;

use super::search::Questions;
use crate::abi::class;
use crate::{ControlError, Controls, NvStatus};

/// First handle of libcuda's objects (`gpu-measurements.md` §1).
const OBJECTS: u32 = 0x5c00_0000;

/// What is asked about handles.
pub trait Ask {
    /// Class of an object; nothing if the client has no such object.
    ///
    /// # Errors
    /// `INVALID_CLIENT` if there is no such client on this file.
    fn class(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError>;

    /// What it hangs on.
    ///
    /// # Errors
    /// As [`Ask::class`].
    fn parent(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError>;
}

impl Ask for Controls {
    fn class(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError> {
        Controls::class(self, client, object)
    }

    fn parent(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError> {
        Controls::parent(self, client, object)
    }
}

/// Why not everything on a file was looked at.
#[derive(Debug, Error)]
pub enum Unwalked {
    /// What the driver says where it should answer.
    #[error(transparent)]
    Driver(#[from] ControlError),
    /// [`Limits::questions`] were not enough.
    #[error("it has more objects than can be asked for")]
    Endless,
}

/// How far to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// After so many handles in a row that are none there are no more.
    pub gap: u32,
    /// Objects that are asked for at most.
    pub objects: u32,
    /// Over all walks with these limits: how many objects there are is up to the process that is looked at.
    pub questions: Questions,
}

/// Questions about the objects of one process: a second at most.
const QUESTIONS: u32 = 1 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self { gap: 8_192, objects: 1 << 18, questions: Questions::new(QUESTIONS) }
    }
}

impl Limits {
    /// Fails if nothing more may be asked.
    fn ask(&self) -> Result<(), Unwalked> {
        if self.questions.take() { Ok(()) } else { Err(Unwalked::Endless) }
    }
}

/// Clients of a file, and the objects that lead to channel groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tree {
    clients: Vec<u32>,
    objects: Objects,
}

/// Looks at everything that these clients of a file have. A client that goes meanwhile has nothing.
///
/// # Errors
/// [`Unwalked`].
pub fn walk(driver: &impl Ask, clients: &[u32], limits: &Limits) -> Result<Tree, Unwalked> {
    let mut tree = Tree::default();
    for client in clients {
        match objects(driver, *client, limits) {
            Ok(objects) => {
                tree.objects.extend(objects);
                tree.clients.push(*client);
            }
            Err(Unwalked::Driver(ControlError::Refused(NvStatus::INVALID_CLIENT))) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(tree)
}

/// (client, handle) of each object that leads to groups, its class and what it hangs on.
type Objects = BTreeMap<(u32, u32), (u32, u32)>;

fn objects(driver: &impl Ask, client: u32, limits: &Limits) -> Result<Objects, Unwalked> {
    let mut found = Objects::new();
    let mut gap = 0;
    for object in (OBJECTS..).take(usize::try_from(limits.objects).unwrap_or(usize::MAX)) {
        limits.ask()?;
        let Some(class) = driver.class(client, object)? else {
            gap += 1;
            if gap >= limits.gap {
                break;
            }
            continue;
        };
        gap = 0;
        let leads = matches!(class, class::DEVICE | class::SUBDEVICE | class::CHANNEL_GROUP)
            || class::is_channel(class)
            || class::is_compute(class);
        if leads && let Some(parent) = driver.parent(client, object)? {
            found.insert((client, object), (class, parent));
        }
    }
    Ok(found)
}

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
