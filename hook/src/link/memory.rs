//! The memory connection of one device.

use std::sync::atomic::{AtomicU64, Ordering::*};

use sluice_comm::{Channel, RequestBody, ResponseBody};
use sluice_hook_core::platform::{LinkError, MemoryLink};

use super::socket::Socket;
use super::{Address, ClientIdentity};

/// The connection over which memory is reserved and released.
#[derive(Debug)]
pub(crate) struct MemoryConnection {
    address: Address,
    identity: ClientIdentity,
    socket: Socket,
    /// A Gemini scheduler grants every reservation, so the hook applies its limit. Bytes held over this connection.
    held: AtomicU64,
    limit: AtomicU64,
}

impl MemoryConnection {
    pub(crate) fn new(address: Address, identity: ClientIdentity) -> Self {
        let (held, limit) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self { address, identity, socket: Socket::closed(), held, limit }
    }

    /// Closes the descriptor in the child of a fork.
    pub(crate) fn close_in_child(&self) {
        self.socket.close();
    }

    fn update(&self, bytes: u64, allocate: bool) -> Result<bool, LinkError> {
        match self.socket.round_trip(&self.identity, RequestBody::MemUpdate { bytes, allocate })? {
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
        self.socket.connect(&self.address)?;
        let attached = if self.is_gemini() {
            self.held.store(used_bytes, Relaxed);
            // What is in use already is reported as if it were being allocated.
            if used_bytes == 0 { Ok(()) } else { self.update(used_bytes, true).map(|_| ()) }
        } else {
            self.socket
                .attach(&self.identity, Channel::Memory, used_bytes, &self.identity.plain())
                .map(|_| ())
        };
        attached.inspect_err(|_| self.socket.close())
    }

    fn is_alive(&self) -> bool {
        self.socket.is_alive()
    }

    fn usage(&self) -> Result<(u64, u64), LinkError> {
        match self.socket.round_trip(&self.identity, RequestBody::MemLimit)? {
            ResponseBody::MemLimit { used, limit } => {
                self.limit.store(limit, Relaxed);
                // A Gemini scheduler without a pod manager keeps no account and returns 0.
                let held = if self.is_gemini() { self.held.load(Relaxed) } else { 0 };
                Ok((used.max(held), limit))
            }
            _ => Err(LinkError::Gone),
        }
    }

    fn reserve(&self, bytes: u64) -> Result<bool, LinkError> {
        if self.is_gemini() {
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
