//! The memory connection of one device.

use std::sync::atomic::{AtomicU64, Ordering::*};

use sluice_comm::{Channel, HOOK_TIMEOUT, RequestBody, ResponseBody};
use sluice_hook_core::platform::{LinkError, MemoryLink};
use sluice_sys::clock::monotonic_ns;

use super::address::Address;
use super::answer_limit::AnswerLimit;
use super::identity::ClientIdentity;
use super::socket::{Socket, is_unreadable};
use crate::channel_groups::Announcement;
use crate::host_memory;
use crate::manager_presence::ManagerPresence;

/// How long a manager without a heartbeat is not asked after it has left a connection or a request waiting. Each attempt makes the program wait.
const UNASKED_NS: u64 = 1_000_000_000;

/// The connection over which memory is reserved and released.
#[derive(Debug)]
pub(crate) struct MemoryConnection {
    address: Address,
    identity: ClientIdentity,
    socket: Socket,
    /// A Gemini scheduler grants every reservation, so the hook applies its limit. Bytes held over this connection.
    held: AtomicU64,
    limit: AtomicU64,
    /// Until when a manager without a heartbeat that has left a request waiting is not asked again, on CLOCK_MONOTONIC, in nanoseconds.
    unasked_until_ns: AtomicU64,
}

impl MemoryConnection {
    pub(crate) fn new(address: Address, identity: ClientIdentity) -> Self {
        let (held, limit) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self { address, identity, socket: Socket::closed(), held, limit, unasked_until_ns: AtomicU64::new(0) }
    }

    /// The UUID of its GPU.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.identity.uuid
    }

    /// From here on the manager's heartbeat is read, on the grant page of the CUDA device with the same memory.
    pub(crate) fn set_presence(&self, presence: &'static ManagerPresence) {
        self.socket.set_presence(presence);
    }

    /// Closes the descriptor in the child of a fork.
    pub(crate) fn close_in_child(&self) {
        self.socket.close();
    }

    /// Fails at once while the manager is known not to run, so that a program that allocates much does not wait each time.
    fn check_presence(&self) -> Result<(), LinkError> {
        let is_silent = match self.socket.presence_left_ns() {
            Some(left) => left == 0,
            None => monotonic_ns() < self.unasked_until_ns.load(Relaxed),
        };
        if !is_silent {
            return Ok(());
        }
        // The next connection reports what was allocated meanwhile.
        self.socket.close();
        Err(LinkError::Silent)
    }

    fn round_trip(&self, body: RequestBody) -> Result<ResponseBody, LinkError> {
        self.check_presence()?;
        let limit = if self.is_gemini() { AnswerLimit::within(HOOK_TIMEOUT) } else { AnswerLimit::AT_ONCE };
        self.socket.round_trip(&self.identity, body, limit).inspect_err(|error| self.note(*error))
    }

    /// Attaches to a pod-manager. One that cannot read the payload refuses it and closes the connection.
    fn attach(&self, used_bytes: u64) -> Result<(), LinkError> {
        let attach = |payload| self.socket.attach(&self.identity, Channel::Memory, used_bytes, &payload);
        let mut attached = attach(self.identity.with_heartbeat(Announcement::default()));
        if is_unreadable(&attached) {
            self.socket.connect(&self.address)?;
            attached = attach(self.identity.plain());
        }
        // A manager that lets memory leave the GPU sends host memory for it.
        attached?.first().into_iter().for_each(host_memory::received);
        Ok(())
    }

    /// Remembers that the manager did not accept the connection or did not read a request.
    fn note(&self, error: LinkError) {
        if error == LinkError::Silent {
            self.unasked_until_ns.store(monotonic_ns() + UNASKED_NS, Relaxed);
        }
    }

    fn update(&self, bytes: u64, allocate: bool) -> Result<bool, LinkError> {
        match self.round_trip(RequestBody::MemUpdate { bytes, allocate })? {
            ResponseBody::MemUpdate { granted } => Ok(granted),
            _ => Err(LinkError::Gone),
        }
    }

    fn is_gemini(&self) -> bool {
        matches!(self.address, Address::Tcp(..))
    }
}

impl MemoryLink for MemoryConnection {
    fn connect(&self, used_bytes: u64) -> Result<(), LinkError> {
        self.check_presence()?;
        self.socket.connect(&self.address).inspect_err(|error| self.note(*error))?;
        let attached = if self.is_gemini() {
            self.held.store(used_bytes, Relaxed);
            // What is in use already is reported as if it were being allocated.
            if used_bytes == 0 { Ok(()) } else { self.update(used_bytes, true).map(|_| ()) }
        } else {
            self.attach(used_bytes)
        };
        attached.inspect_err(|error| {
            self.note(*error);
            self.socket.close();
        })
    }

    fn is_alive(&self) -> bool {
        self.socket.is_alive()
    }

    fn usage(&self) -> Result<(u64, u64), LinkError> {
        match self.round_trip(RequestBody::MemLimit)? {
            ResponseBody::MemLimit { used, limit } => {
                self.limit.store(limit, Relaxed);
                // A Gemini scheduler without a pod manager keeps no account and returns 0.
                let held = if self.is_gemini() { self.held.load(Relaxed) } else { 0 };
                Ok((used.max(held), limit))
            }
            _ => Err(LinkError::Gone),
        }
    }

    fn owns_process(&self, pid: u32) -> Result<bool, LinkError> {
        if self.is_gemini() {
            // Such a manager does not know processes.
            return Ok(true);
        }
        match self.round_trip(RequestBody::OwnProcess { pid })? {
            ResponseBody::OwnProcess { own } => Ok(own),
            _ => Err(LinkError::Gone),
        }
    }

    fn reserve(&self, bytes: u64) -> Result<bool, LinkError> {
        if self.is_gemini() {
            // Such a manager reads no memory of the GPU, so it has nothing to wait for.
            if bytes == 0 {
                return Ok(true);
            }
            let total = self.held.load(Relaxed).saturating_add(bytes);
            if total > self.limit.load(Relaxed) {
                return Ok(false);
            }
        }
        let granted = self.update(bytes, true)?;
        if granted {
            self.held.fetch_add(bytes, Relaxed);
        }
        Ok(granted)
    }

    fn release(&self, bytes: u64) -> Result<(), LinkError> {
        let held = self.held.load(Relaxed);
        self.held.store(held.saturating_sub(bytes), Relaxed);
        self.update(bytes, false).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
