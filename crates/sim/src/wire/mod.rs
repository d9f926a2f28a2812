//! The protocol between a client and the daemon: [`region`] in shared memory, [`message`] over the socket.

pub(crate) mod message;
pub(crate) mod record;
pub(crate) mod region;
