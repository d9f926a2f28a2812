//! Messages for the node agent that were not sent yet, in order. The queue is never longer than what is controlled: a message that is
//! revoked before it was sent is dropped.

use super::EscrowCopy;
use sluice_comm::escrow::EscrowMessage;
use std::collections::{HashSet, VecDeque};

/// The queue, and what the node agent keeps already.
#[derive(Default)]
pub(super) struct EscrowQueue {
    waiting: VecDeque<(EscrowMessage, Option<EscrowCopy>)>,
    /// Control descriptors that the node agent keeps, so that they have to be revoked.
    descriptors: HashSet<u64>,
    /// Groups that the node agent keeps.
    groups: HashSet<u64>,
}

impl EscrowQueue {
    /// Queues a message. Returns a copy that is not needed any more.
    pub(super) fn push(&mut self, message: EscrowMessage, copy: Option<EscrowCopy>) -> Option<EscrowCopy> {
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
            EscrowMessage::Close(line) => {
                let concerns = |message: &EscrowMessage| match message {
                    EscrowMessage::Descriptor(number) => number == line,
                    EscrowMessage::Group { descriptor: of_group, .. } => of_group == line,
                    EscrowMessage::Forget(_) | EscrowMessage::Close(_) => false,
                };
                self.waiting.retain_mut(|(message, copy)| {
                    let revoked = concerns(message);
                    if revoked && copy.is_some() {
                        unneeded = copy.take();
                    }
                    !revoked
                });
                if !self.descriptors.contains(line) {
                    return unneeded;
                }
            }
        }
        self.waiting.push_back((message, copy));
        unneeded
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn first(&self) -> Option<&(EscrowMessage, Option<EscrowCopy>)> {
        self.waiting.front()
    }

    /// Removes the first message, which was sent. Returns its copy.
    pub(super) fn pop_sent(&mut self) -> Option<EscrowCopy> {
        let (message, copy) = self.waiting.pop_front()?;
        // Whether it was kept before does not matter.
        let _ = match message {
            EscrowMessage::Descriptor(line) => self.descriptors.insert(line),
            EscrowMessage::Group { group, .. } => self.groups.insert(group),
            EscrowMessage::Forget(group) => self.groups.remove(&group),
            EscrowMessage::Close(line) => self.descriptors.remove(&line),
        };
        copy
    }

    /// Removes all messages. Returns their copies.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = EscrowCopy> + '_ {
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
