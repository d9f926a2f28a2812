//! What hangs on an open file, by asking for one handle after the other.
//!
//! The driver has no question "which handles are there" that it answers in full. But clients are numbered from one base, and
//! libcuda numbers its objects from another, one by one from its start; a wrong handle is answered in a microsecond.

use std::cell::Cell;
use std::collections::BTreeMap;

use sluice_comm::attach::{ContextHandles, MAX_CHANNELS};

use thiserror::Error;

use crate::abi::class;
use crate::{ControlError, Controls, NvStatus};

/// First handle of the clients.
pub const CLIENTS: u32 = 0xc1d0_0000;
/// First handle of libcuda's objects (`gpu-measurements.md` §1).
const OBJECTS: u32 = 0x5c00_0000;
/// Clients that are looked for where it is not known how far the numbering has got.
const FEW: u32 = 512;

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
    #[error("it has more clients and objects than can be asked for")]
    Endless,
}

/// How far to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The first client to ask for; then downwards.
    pub newest: u32,
    /// How many clients are asked for at most.
    pub clients: u32,
    /// How many are asked for below the lowest that was found: a process makes its clients within a short time.
    pub after_found: u32,
    /// Objects: after so many handles in a row that are none there are no more.
    pub gap: u32,
    /// Objects that are asked for at most.
    pub objects: u32,
    /// Questions that may still be asked, over all walks with these limits: how many clients and objects there are is up to
    /// the process that is looked at.
    pub questions: Cell<u32>,
}

/// Questions about one process, each a microsecond of a real driver's time: some seconds in all. Enough for sixteen files on
/// which every client is asked for in vain.
const QUESTIONS: u32 = 1 << 22;

impl Limits {
    /// From this client downwards, and a few where it is not known.
    #[must_use]
    pub fn below(newest: Option<u32>) -> Self {
        let newest = newest.filter(|newest| *newest >= CLIENTS).unwrap_or(CLIENTS + FEW);
        let questions = Cell::new(QUESTIONS);
        Self { newest, clients: 1 << 18, after_found: 4_096, gap: 8_192, objects: 1 << 18, questions }
    }

    /// Fails if nothing more may be asked.
    fn ask(&self) -> Result<(), Unwalked> {
        let left = self.questions.get().checked_sub(1).ok_or(Unwalked::Endless)?;
        self.questions.set(left);
        Ok(())
    }
}

/// Clients of a file, and the objects that lead to channel groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The clients, newest first.
    pub clients: Vec<u32>,
    objects: Objects,
}

/// Looks at everything on a file. A client that goes meanwhile is none.
///
/// # Errors
/// [`Unwalked`].
pub fn walk(driver: &impl Ask, limits: &Limits) -> Result<Tree, Unwalked> {
    let mut tree = Tree::default();
    let mut left = limits.clients;
    let mut client = limits.newest;
    while client >= CLIENTS && left > 0 {
        limits.ask()?;
        match driver.class(client, client).map_err(Unwalked::from).and_then(|class| match class {
            Some(_) => objects(driver, client, limits).map(Some),
            None => Ok(None),
        }) {
            Ok(Some(objects)) => {
                tree.objects.extend(objects);
                tree.clients.push(client);
                left = limits.after_found;
            }
            Ok(None) | Err(Unwalked::Driver(ControlError::Refused(NvStatus::INVALID_CLIENT))) => {}
            Err(error) => return Err(error),
        }
        client -= 1;
        left -= 1;
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
    /// may have one all the same, so then all its groups are.
    ///
    /// # Errors
    /// Says which group could not be stopped, and why.
    pub fn into_groups(self) -> Result<Vec<ContextHandles>, String> {
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
