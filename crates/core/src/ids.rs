//! Ids of clients, processes and connections: numbers that the owner of the ledgers assigns and never reuses.

/// A client: one entry of the resource file, or one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// One process of a client, or one connection of a peer that does not name its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

/// A connection of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A process of the kernel: its number, and the time of its start in clock ticks since boot.
pub type ProcessKey = (i32, u64);
