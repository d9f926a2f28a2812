//! Connections to a manager: its address, the token connection and the memory connection.

mod address;
mod announce;
mod answer_limit;
mod answer_wait;
mod identity;
mod memory;
mod socket;
mod token;

pub(crate) use address::Address;
pub(crate) use identity::ClientIdentity;
pub(crate) use memory::MemoryConnection;
pub(crate) use token::TokenConnection;
