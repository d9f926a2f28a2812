//! Descriptor escrow: copies of the control descriptors, kept by the node agent. If this manager dies while groups are disabled, the
//! node agent enables them. A group is escrowed before any control of it is made.

mod queue;

use super::ControlDescriptorId;
use nix::sys::socket::{setsockopt, sockopt::SendTimeout};
use nix::sys::time::{TimeVal, TimeValLike};
use queue::EscrowQueue;
use sluice_comm::attach::ContextHandles;
use sluice_comm::escrow::EscrowMessage;
use sluice_core::channel_groups::GroupId;
use sluice_sys::socket::{send_with_fds, try_send_with_fds};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tracing::{info, warn};

/// How long the node agent may leave its end full, seconds. Controls are delayed meanwhile, so the manager waits for it once.
const SEND_TIMEOUT_S: i64 = 1;

/// What is escrowed of one control descriptor.
pub(crate) struct EscrowCopy {
    /// A copy of the descriptor.
    pub(crate) descriptor: OwnedFd,
    /// The pidfd of the process that sent it. The node agent closes the copy when the process ends.
    pub(crate) process: OwnedFd,
}

/// The manager's end of the escrow.
pub(crate) struct EscrowClient {
    /// Open for as long as this process lives: the node agent waits for its end.
    socket: OwnedFd,
    state: AgentState,
    queue: EscrowQueue,
}

/// What is known of the node agent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AgentState {
    /// It takes messages.
    Ready,
    /// It once left its end full: what it does not take at once is offered again before the next control request.
    Slow,
    /// Its end is closed.
    Gone,
}

impl EscrowClient {
    /// Over a packet socket to the node agent.
    ///
    /// # Errors
    /// What setsockopt returns.
    pub(crate) fn over(socket: OwnedFd) -> io::Result<Self> {
        setsockopt(&socket, SendTimeout, &TimeVal::seconds(SEND_TIMEOUT_S))?;
        Ok(Self { socket, state: AgentState::Ready, queue: EscrowQueue::default() })
    }

    /// Escrows a control descriptor. Returns copies that are not needed: their senders may have made them slow to close.
    pub(crate) fn add_descriptor(&mut self, id: ControlDescriptorId, copy: EscrowCopy) -> Vec<EscrowCopy> {
        self.send(EscrowMessage::Descriptor(id.0), Some(copy))
    }

    /// Escrows how a group is reached.
    pub(crate) fn add_group(
        &mut self,
        group: GroupId,
        id: ControlDescriptorId,
        handles: &ContextHandles,
    ) -> Vec<EscrowCopy> {
        self.send(EscrowMessage::Group { group: group.0, descriptor: id.0, handles: handles.clone() }, None)
    }

    pub(crate) fn remove_group(&mut self, group: GroupId) -> Vec<EscrowCopy> {
        self.send(EscrowMessage::Forget(group.0), None)
    }

    pub(crate) fn remove_descriptor(&mut self, id: ControlDescriptorId) -> Vec<EscrowCopy> {
        self.send(EscrowMessage::Close(id.0), None)
    }

    fn send(&mut self, message: EscrowMessage, copy: Option<EscrowCopy>) -> Vec<EscrowCopy> {
        if self.state == AgentState::Gone {
            return copy.into_iter().collect();
        }
        let mut unneeded: Vec<EscrowCopy> = self.queue.push(message, copy).into_iter().collect();
        unneeded.extend(self.flush());
        unneeded
    }

    /// Sends what was not taken yet. Returns copies that are not needed any more.
    pub(crate) fn flush(&mut self) -> Vec<EscrowCopy> {
        let mut unneeded = Vec::new();
        let queued = self.queue.len();
        while let Some((message, copy)) = self.queue.first() {
            let fds: Vec<_> =
                copy.iter().flat_map(|copy| [copy.descriptor.as_fd(), copy.process.as_fd()]).collect();
            let send = if self.state == AgentState::Ready { send_with_fds } else { try_send_with_fds };
            match send(self.socket.as_fd(), &message.encode(), &fds) {
                Ok(_) => unneeded.extend(self.queue.pop_sent()),
                Err(error) if is_full(&error) => {
                    if self.state == AgentState::Ready {
                        self.state = AgentState::Slow;
                        warn!(%error, "the node agent takes no descriptors for now: if this manager dies, disabled processes may have to enable their groups themselves");
                    }
                    return unneeded;
                }
                Err(error) => {
                    // The node agent watches the processes itself, so it closes in time what it has kept.
                    self.state = AgentState::Gone;
                    warn!(%error, "the node agent takes no more descriptors: if this manager dies, disabled processes have to enable their groups themselves");
                    unneeded.extend(self.queue.clear());
                    return unneeded;
                }
            }
        }
        if self.state == AgentState::Slow && queued > 1 {
            info!(messages = queued, "the node agent has all descriptors again");
        }
        unneeded
    }
}

/// Whether there is no room at the moment. The last one is the kernel's limit of descriptors in transit.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || matches!(
            error.raw_os_error(),
            Some(nix::libc::ENOBUFS | nix::libc::ENOMEM | nix::libc::ETOOMANYREFS)
        )
}
