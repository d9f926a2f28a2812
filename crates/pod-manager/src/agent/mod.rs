//! The node agent's side of the manager: the control API on a socket and a thread of its own.

mod serve;
mod set;

pub(crate) use serve::Server;
pub(crate) use set::ClientSet;
