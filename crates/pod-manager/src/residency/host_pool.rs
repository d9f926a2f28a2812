//! Which process has how much of the host memory for what leaves the GPU.
//!
//! A process may keep its memory, and with it the pages, for as long as it lives, connected or not. So the pool counts until the process
//! has ended, and the most that it was given.

use crate::processes::HostMemory;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sluice_core::{ClientId, ProcessKey};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Processes of a client that the pool counts at once. Each takes two descriptors of the manager for as long as it lives.
const MOST_OF_CLIENT: usize = 64;

/// All processes that have host memory.
pub(super) struct HostPool {
    /// Bytes for all processes together.
    bytes: u64,
    /// From which the memory comes, if it is known.
    numa_node: Option<u32>,
    holders: Vec<Holder>,
}

struct Holder {
    client: ClientId,
    key: ProcessKey,
    /// Readable when the process has ended.
    pidfd: OwnedFd,
    memory: Arc<HostMemory>,
    /// The most that it was given of this memory.
    given: u64,
    /// The most that it has declared to have.
    declared: u64,
}

/// Where the memory of a process goes when it leaves the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To the memory of this pool, which is filled for it.
    Here,
    /// To that of an earlier manager.
    Earlier,
}

/// Why a process gets no host memory.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The pool has not so much left.
    Pool { used: u64, of: u64, needed: u64 },
    /// Processes of the same client that live have too much of what the client may have.
    Client { used: u64, of: u64, needed: u64 },
    /// The client has too many processes.
    TooMany,
    /// The system has no descriptor left for it.
    System(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool { used, of, needed } => {
                write!(out, "{used} of {of} bytes are in use, {needed} are needed")
            }
            Self::Client { used, of, needed } => write!(
                out,
                "processes of the client have {used} of its {of} bytes until they end, {needed} are needed"
            ),
            Self::TooMany => write!(out, "{MOST_OF_CLIENT} processes of the client have some already"),
            Self::System(error) => error.fmt(out),
        }
    }
}

impl HostPool {
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes, numa_node: None, holders: Vec::new() }
    }

    /// Memory comes from this NUMA node, as far as it has some.
    pub(super) fn on_node(self, numa_node: Option<u32>) -> Self {
        Self { numa_node, ..self }
    }

    /// The memory of a process: what it had before if it connects again, else new memory of `bytes`, of which it is given nothing yet. The
    /// second value is the pidfd to watch if the memory is new.
    pub(super) fn open(
        &mut self,
        client: ClientId,
        key: ProcessKey,
        pidfd: &OwnedFd,
        bytes: u64,
    ) -> Result<(Arc<HostMemory>, Option<&OwnedFd>), Refusal> {
        if let Some(holder) = self.holders.iter_mut().find(|holder| holder.key == key) {
            holder.client = client;
            return Ok((holder.memory.clone(), None));
        }
        if self.of_client(client).count() >= MOST_OF_CLIENT {
            return Err(Refusal::TooMany);
        }
        let made =
            HostMemory::create(bytes, self.numa_node).and_then(|memory| Ok((memory, pidfd.try_clone()?)));
        let (memory, pidfd) = made.map_err(Refusal::System)?;
        self.holders.push(Holder { client, key, pidfd, memory: memory.clone(), given: 0, declared: 0 });
        Ok((memory, self.holders.last().map(|holder| &holder.pidfd)))
    }

    /// Gives a process enough for `bytes`, which count until it has ended, if it and the other processes of its client then have at most
    /// `of_client`. With [`Place::Earlier`] what it declared suffices. A process without host memory needs none.
    pub(super) fn give(
        &mut self,
        key: ProcessKey,
        bytes: u64,
        of_client: u64,
        place: Place,
    ) -> Result<(), Refusal> {
        let Some(holder) = self.holders.iter().find(|holder| holder.key == key) else { return Ok(()) };
        let (client, counted) = (holder.client, holder.counted());
        let enough = if place == Place::Earlier { counted } else { holder.given };
        if bytes <= enough {
            return Ok(());
        }
        let needed = bytes.saturating_sub(counted);
        let (used, by_client) = (sum(self.holders.iter()), sum(self.of_client(client)));
        if by_client.saturating_add(needed) > of_client {
            return Err(Refusal::Client { used: by_client, of: of_client, needed });
        }
        if used.saturating_add(needed) > self.bytes {
            return Err(Refusal::Pool { used, of: self.bytes, needed });
        }
        if let Some(holder) = self.holders.iter_mut().find(|holder| holder.key == key) {
            holder.given = bytes;
        }
        Ok(())
    }

    /// Counts what a process declares to have already, of an earlier manager. It may declare anything, so this gives it nothing.
    pub(super) fn count(&mut self, key: ProcessKey, bytes: u64) {
        if let Some(holder) = self.holders.iter_mut().find(|holder| holder.key == key) {
            holder.declared = holder.declared.max(bytes);
        }
    }

    /// Takes back the memory of the processes that have ended. `ended` is called with the pidfd of each.
    pub(super) fn take_back(&mut self, ended: impl Fn(&OwnedFd)) {
        for holder in self.holders.extract_if(.., |holder| holder.has_ended()) {
            ended(&holder.pidfd);
            holder.memory.note_process_ended();
        }
    }

    fn of_client(&self, client: ClientId) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(move |holder| holder.client == client)
    }
}

impl Holder {
    fn counted(&self) -> u64 {
        self.given.max(self.declared)
    }

    fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}

fn sum<'h>(holders: impl Iterator<Item = &'h Holder>) -> u64 {
    holders.fold(0, |sum, holder| sum.saturating_add(holder.counted()))
}

#[cfg(test)]
mod tests;
