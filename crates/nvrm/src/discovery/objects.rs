//! The objects of an open file's clients: the walk that finds them, and the channel groups among them that are to be
//! controlled.
//!
//! The driver has no query that lists all handles. But libcuda numbers its objects one by one from a fixed start, and the driver
//! answers a wrong handle in a microsecond.

use std::collections::BTreeMap;

use sluice_comm::attach::{ContextHandles, MAX_CHANNELS};
use thiserror::Error;

use super::client_search::QueryBudget;
use super::limits::{HANDLE_GAP, MAX_OBJECTS, NUMBERS_AFTER_CLIENT, OBJECT_QUERIES};
use crate::abi::{class, handle_info};
use crate::{ControlError, Controls, NvStatus};

/// The first handle of libcuda's objects (`docs/reference/driver-controls.md` §4).
const FIRST_OBJECT: u32 = 0x5c00_0000;

/// Queries about handles.
pub trait ObjectQueries {
    /// The class of an object; `None` if the client has no such object.
    /// Errors: `INVALID_CLIENT` if there is no such client on this file.
    fn class(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError>;

    /// The parent of an object; `None` if the client has no such object.
    /// Errors: as [`ObjectQueries::class`].
    fn parent(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError>;
}

impl ObjectQueries for Controls {
    fn class(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError> {
        self.handle_info(client, object, handle_info::CLASS)
    }

    fn parent(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError> {
        self.handle_info(client, object, handle_info::PARENT)
    }
}

/// Why a walk did not reach its end.
#[derive(Debug, Error)]
pub enum WalkError {
    /// The driver's error instead of an answer.
    #[error(transparent)]
    Driver(#[from] ControlError),
    /// [`WalkLimits::queries`] were used up.
    #[error("it has more objects than can be queried")]
    TooManyObjects,
}

/// How far a walk goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkLimits {
    /// The walk ends after this many consecutive handles without an object.
    pub gap: u32,
    /// Objects of one client that are queried.
    pub objects: u32,
    /// The search for clients ends after so many numbers without another one: a process makes its clients within a short time.
    pub numbers_after_client: u64,
    /// Queries of all walks with these limits. A budget is needed because the inspected process decides how many objects it makes.
    pub queries: QueryBudget,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self {
            gap: HANDLE_GAP,
            objects: MAX_OBJECTS,
            numbers_after_client: NUMBERS_AFTER_CLIENT,
            queries: QueryBudget::new(OBJECT_QUERIES),
        }
    }
}

/// Walks through all objects of these clients of a file. A client that is freed during the walk contributes nothing.
pub fn walk_objects(
    driver: &impl ObjectQueries,
    clients: &[u32],
    limits: &WalkLimits,
) -> Result<ObjectTree, WalkError> {
    let mut tree = ObjectTree::default();
    for client in clients {
        match objects_of(driver, *client, limits) {
            Ok(objects) => {
                tree.objects.extend(objects);
                tree.clients.push(*client);
            }
            Err(WalkError::Driver(ControlError::Refused(NvStatus::INVALID_CLIENT))) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(tree)
}

fn objects_of(driver: &impl ObjectQueries, client: u32, limits: &WalkLimits) -> Result<Objects, WalkError> {
    let mut found = Objects::new();
    let mut gap = 0;
    for object in (FIRST_OBJECT..).take(usize::try_from(limits.objects).unwrap_or(usize::MAX)) {
        if !limits.queries.try_take() {
            return Err(WalkError::TooManyObjects);
        }
        let Some(class) = driver.class(client, object)? else {
            gap += 1;
            if gap >= limits.gap {
                break;
            }
            continue;
        };
        gap = 0;
        let leads_to_groups = matches!(class, class::DEVICE | class::SUBDEVICE | class::CHANNEL_GROUP)
            || class::is_channel(class)
            || class::is_compute(class);
        if leads_to_groups && let Some(parent) = driver.parent(client, object)? {
            found.insert((client, object), (class, parent));
        }
    }
    Ok(found)
}

/// The clients of a file, and their objects that lead to channel groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ObjectTree {
    clients: Vec<u32>,
    objects: Objects,
}

/// (client, handle) of each object that leads to groups, with its class and parent.
type Objects = BTreeMap<(u32, u32), (u32, u32)>;

impl ObjectTree {
    /// The groups to control: those with a compute engine on one of their channels. If no channel of a client shows a compute engine,
    /// all of its groups are controlled, because one may have it all the same.
    ///
    /// `is_on_this_gpu` decides by client and subdevice. Groups of other GPUs are left out before they can cause an error.
    /// Errors: a text that names a group that could not be disabled, and why.
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
