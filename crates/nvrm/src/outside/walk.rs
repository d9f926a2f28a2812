//! What hangs on the clients of an open file, by asking for one handle after the other.
//!
//! The driver has no question "which handles are there" that it answers in full. But libcuda numbers its objects one by one from its
//! start, and a wrong handle is answered in a microsecond.

use thiserror::Error;

use super::search::Questions;
use super::tree::{Objects, Tree};
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
