//! The walk through the objects of an open file's clients: it queries one handle after the other.
//!
//! The driver has no query that lists all handles. But libcuda numbers its objects one by one from a fixed start, and the driver
//! answers a wrong handle in a microsecond.

use thiserror::Error;

use super::client_search::QueryBudget;
use super::limits::{HANDLE_GAP, MAX_OBJECTS, OBJECT_QUERIES};
use super::object_tree::{ObjectTree, Objects};
use crate::abi::class;
use crate::{ControlError, Controls, NvStatus};

/// The first handle of libcuda's objects (`docs/reference/driver-controls.md` §4).
const FIRST_OBJECT: u32 = 0x5c00_0000;

/// Queries about handles.
pub trait ObjectQueries {
    /// The class of an object; `None` if the client has no such object.
    ///
    /// # Errors
    /// `INVALID_CLIENT` if there is no such client on this file.
    fn class(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError>;

    /// The parent of an object; `None` if the client has no such object.
    ///
    /// # Errors
    /// As [`ObjectQueries::class`].
    fn parent(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError>;
}

impl ObjectQueries for Controls {
    fn class(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError> {
        Controls::class(self, client, object)
    }

    fn parent(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError> {
        Controls::parent(self, client, object)
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
    /// Queries of all walks with these limits. A budget is needed because the inspected process decides how many objects it makes.
    pub queries: QueryBudget,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self { gap: HANDLE_GAP, objects: MAX_OBJECTS, queries: QueryBudget::new(OBJECT_QUERIES) }
    }
}

/// Walks through all objects of these clients of a file. A client that is freed during the walk contributes nothing.
///
/// # Errors
/// [`WalkError`].
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
