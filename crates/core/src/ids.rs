//! Names of things inside the ledgers: small numbers that the owner of the ledgers hands out and never reuses.

/// A client: one entry of the resource file, one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// One process of a client (or one connection of a peer that does not say which process it is).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);
