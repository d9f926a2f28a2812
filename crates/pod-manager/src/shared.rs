//! What the event loop shares with every part: the tables that several parts read, and the [`Io`].

use crate::clients::{Clients, Processes};
use crate::grants::Grants;
use crate::io::Io;
use crate::violations::Violations;

/// The tables of clients, processes and grants, and the [`Io`]. The event loop owns them and lends them to the parts.
pub(crate) struct Shared {
    pub(crate) clients: Clients,
    pub(crate) processes: Processes,
    pub(crate) grants: Grants,
    pub(crate) violations: Violations,
    pub(crate) io: Io,
}
