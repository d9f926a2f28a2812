//! Descriptor escrow: copies of the control descriptors, kept by the node agent. If this manager dies while groups are disabled, the
//! node agent enables them. A group is escrowed before any control of it is made.

use nix::sys::socket::{setsockopt, sockopt::SendTimeout};
use nix::sys::time::{TimeVal, TimeValLike};
use sluice_comm::escrow::EscrowMessage;
use sluice_sys::socket::{send_with_fds, try_send_with_fds};
use std::collections::{HashSet, VecDeque};
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
    /// Errors: what setsockopt returns.
    pub(crate) fn over(socket: OwnedFd) -> io::Result<Self> {
        setsockopt(&socket, SendTimeout, &TimeVal::seconds(SEND_TIMEOUT_S))?;
        Ok(Self { socket, state: AgentState::Ready, queue: EscrowQueue::default() })
    }

    /// Escrows a descriptor or how a group is reached, or revokes it. Returns copies that are not needed: their senders may have made them
    /// slow to close.
    pub(crate) fn send(&mut self, message: EscrowMessage, copy: Option<EscrowCopy>) -> Vec<EscrowCopy> {
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

/// Messages for the node agent that were not sent yet, in order, and what it keeps already. The queue is never longer than what is
/// controlled: a message that is revoked before it was sent is dropped.
#[derive(Default)]
struct EscrowQueue {
    waiting: VecDeque<(EscrowMessage, Option<EscrowCopy>)>,
    /// Control descriptors that the node agent keeps, so that they have to be revoked.
    descriptors: HashSet<u64>,
    /// Groups that the node agent keeps.
    groups: HashSet<u64>,
}

impl EscrowQueue {
    /// Queues a message. Returns a copy that is not needed any more.
    fn push(&mut self, message: EscrowMessage, copy: Option<EscrowCopy>) -> Option<EscrowCopy> {
        let mut unneeded = None;
        match &message {
            EscrowMessage::Descriptor(_) => {}
            EscrowMessage::Group { group, .. } => self.remove_group(*group),
            EscrowMessage::Forget(group) => {
                self.remove_group(*group);
                if !self.groups.contains(group) {
                    return None;
                }
            }
            EscrowMessage::Close(descriptor) => {
                let concerns = |message: &EscrowMessage| match message {
                    EscrowMessage::Descriptor(number) => number == descriptor,
                    EscrowMessage::Group { descriptor: of_group, .. } => of_group == descriptor,
                    EscrowMessage::Forget(_) | EscrowMessage::Close(_) => false,
                };
                self.waiting.retain_mut(|(message, copy)| {
                    let revoked = concerns(message);
                    if revoked && copy.is_some() {
                        unneeded = copy.take();
                    }
                    !revoked
                });
                if !self.descriptors.contains(descriptor) {
                    return unneeded;
                }
            }
        }
        self.waiting.push_back((message, copy));
        unneeded
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }

    fn first(&self) -> Option<&(EscrowMessage, Option<EscrowCopy>)> {
        self.waiting.front()
    }

    /// Removes the first message, which was sent. Returns its copy.
    fn pop_sent(&mut self) -> Option<EscrowCopy> {
        let (message, copy) = self.waiting.pop_front()?;
        // Whether it was kept before does not matter.
        let _ = match message {
            EscrowMessage::Descriptor(descriptor) => self.descriptors.insert(descriptor),
            EscrowMessage::Group { group, .. } => self.groups.insert(group),
            EscrowMessage::Forget(group) => self.groups.remove(&group),
            EscrowMessage::Close(descriptor) => self.descriptors.remove(&descriptor),
        };
        copy
    }

    /// Removes all messages. Returns their copies.
    fn clear(&mut self) -> impl Iterator<Item = EscrowCopy> + '_ {
        self.waiting.drain(..).filter_map(|(_, copy)| copy)
    }

    fn remove_group(&mut self, group: u64) {
        self.waiting.retain(|(message, _)| match message {
            EscrowMessage::Group { group: number, .. } => *number != group,
            EscrowMessage::Descriptor(_) | EscrowMessage::Forget(_) | EscrowMessage::Close(_) => true,
        });
    }
}

#[cfg(test)]
mod tests;
